"""What a run looks like on a terminal."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Container, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from rich import box
from rich.console import Console, Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from driftscope.audit.told import audit_note, audit_warnings
from driftscope.findings.causes import causes_of
from driftscope.findings.verdict import Reading, Verdict, bounds, figure, verdict
from driftscope.findings.view import render_findings
from driftscope.runs.naming import short_name
from driftscope.runs.summary import unconfirmed
from driftscope.show.cost import cost_section
from driftscope.show.sections import probe_sections
from driftscope.show.step_table import step_table

if TYPE_CHECKING:
    from driftscope.findings.model import Assessment
    from driftscope.runs.run import Run

_KIND = {"drift": "yellow", "none": "green", "unknown": "blue"}
_ORIGIN = {"config": "green", "weights": "cyan", "default": "yellow", "user": "magenta", "target": "blue"}
_SHOWN_SWITCHES = (
    "carry",
    "fc_norm",
    "input_norm",
    "state_norm",
    "residual",
    "final_norm",
    "layer_form",
    "feature_source",
    "aux_boundaries",
    "num_layers",
    "sliding_window",
    "rope.theta",
    "rope.scaling",
    "embedding",
    "head",
    "draft_vocab_size",
    "vocab_map",
    "block_size",
    "mask_token_id",
)
_COMPARED = "no drafting"
_PIPED_WIDTH = 120


def stdout_console(stream: TextIO | None = None) -> Console:
    """A console on stdout; without a terminal and COLUMNS it is 120 wide, so that a file gets the whole table."""
    console = Console(file=stream or sys.stdout, highlight=False, markup=False, emoji=False)
    if not console.is_terminal and "COLUMNS" not in console._environ:
        console.width = _PIPED_WIDTH
    return console


def render_run(
    run: Run,
    console: Console,
    depth: int | None = None,
    feed: str = "drafted",
    assessment: Assessment | None = None,
) -> None:
    """Print a run: `render` with everything that the run folder knows. `assessment`: of that depth, if made already."""
    from driftscope.findings import assess
    from driftscope.runs import summary

    render(
        run.summary(depth),
        console,
        checkpoint=run.info.checkpoint.model_dump(mode="json"),
        counts=summary.counts(run),
        feed=feed,
        assessment=assessment or assess(run, depth=depth),
        audit=run.info.audit,
    )


def render(
    summary: Mapping[str, Any],
    console: Console,
    *,
    checkpoint: Mapping[str, Any] | None = None,
    counts: Mapping[str, int] | None = None,
    feed: str = "drafted",
    assessment: Assessment | None = None,
    audit: Mapping[str, Any] | None = None,
) -> None:
    """Print the verdict, the table of steps, acceptance lengths, findings, notes and switches of a summary.

    `checkpoint` is that of `run.json`, with origins and warnings, which the summary has not; `counts` are those of
    `driftscope.runs.summary.counts`, `audit` the short audit in `run.json`. `feed` chooses the table; verdict and onsets are
    always of the drafted feed, the onsets at the thresholds of `assessment`.
    """
    checkpoint = checkpoint or summary["checkpoint"]
    causes = None
    if assessment is not None:
        summary = assessment.at_thresholds(summary)
        causes = causes_of(assessment, summary["checkpoint"]["switches"].get("carry") == "post")
    print_warnings(audit_warnings(audit), console)
    console.print(_verdict_panel(verdict(summary, causes), _title(summary)))
    steps = summary["steps" if feed == "drafted" else "text_fed_steps"]
    if steps:
        console.print(_caption(summary, feed, counts))
        onset = summary["onset"] if feed == "drafted" else {}
        table, left_out = step_table(steps, onset, console)
        marked = any(isinstance(start, int) for start in onset.values())
        console.print(table)
        console.print(_legend(steps, left_out, marked, console.options.ascii_only))
    if summary["acceptance_length"]:
        console.print(_lengths(summary))
    if (section := cost_section(summary)) is not None:
        console.print(section)
    for part in probe_sections(summary):
        console.print(part)
    if assessment is not None:
        render_findings(assessment, console)
    notes = _notes(summary, counts, {finding.code for finding in assessment.findings} if assessment else set())
    notes += [line] if (line := audit_note(audit)) else []
    if notes:
        console.print()
        console.print(_bullets([(Text("note", "bold"), Text(note)) for note in notes]))
    console.print()
    console.print(switches_table(checkpoint["switches"], checkpoint.get("origins") or {}))
    print_warnings(checkpoint.get("warnings") or (), console)


def switches_table(switches: Mapping[str, Any], origins: Mapping[str, Any], *, every: bool = False) -> Group:
    """The switches with where each value came from: those that decide most and those set by a user, or `every` one,
    where plain defaults that nothing speaks for or against share a line."""
    known = {name: origin for name, origin in origins.items() if isinstance(origin, Mapping)}

    def source(name: str) -> str:
        return str(known.get(name, {}).get("source", ""))

    def detail(name: str) -> str:
        return str(known.get(name, {}).get("detail", ""))

    chosen = [name for name in _SHOWN_SWITCHES if name in switches and _applies(name, switches)]
    plain = [name for name in switches if name not in chosen and source(name) == "default" and not detail(name)]
    others = [name for name in switches if name not in chosen and name not in plain]
    chosen += [name for name in others if every or source(name) == "user" or not chosen]
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False, header_style="bold")
    table.add_column("switch", no_wrap=True)
    table.add_column("value", overflow="fold")
    table.add_column("from", no_wrap=True)
    table.add_column("detail", style="dim", overflow="fold")
    for name in chosen:
        where = source(name)
        table.add_row(
            name,
            Text(_value(switches[name]), "bold"),
            Text(where or "-", _ORIGIN.get(where, "dim")),
            Text(detail(name)),
        )
    if every:
        tail = "; ".join(f"{name} {_value(switches[name])}" for name in plain)
        return Group(table, Text(f"plain defaults: {tail}", "dim")) if tail else Group(table)
    rest = [name for name in switches if name not in chosen]
    if not rest:
        return Group(table)
    sources = Counter(source(name) or "unknown" for name in rest)
    listed = ", ".join(f"{count} from {where}" for where, count in sources.most_common())
    return Group(table, Text(f"{len(rest)} more ({listed}): driftscope inspect shows all", "dim"))


def _applies(name: str, switches: Mapping[str, Any]) -> bool:
    """Whether a switch says anything of this drafter: those of drafting at once are None elsewhere."""
    return name not in ("block_size", "mask_token_id") or switches[name] is not None


def print_warnings(warnings: Sequence[str], console: Console) -> None:
    """Warnings where they cannot be missed."""
    if warnings:
        console.print()
        console.print(_bullets([(Text("warning", "bold yellow"), Text(str(text), "yellow")) for text in warnings]))


def _bullets(rows: Sequence[tuple[Text, Text]]) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column()
    for row in rows:
        grid.add_row(*row)
    return grid


def _title(summary: Mapping[str, Any]) -> str:
    checkpoint, target = summary["checkpoint"], summary["target"]
    return f"{short_name(checkpoint['path'])} ({checkpoint['layout']}), drafting for {short_name(target['name'])}"


def _verdict_panel(found: Verdict, title: str) -> Panel:
    colour = _KIND[found.kind]
    parts: list[Any] = [Text(found.headline, f"bold {colour}")]
    if found.cause:
        parts.append(Text(found.cause))
    if found.readings:
        grid = Table.grid(padding=(0, 2))
        grid.add_column(no_wrap=True)
        grid.add_column(no_wrap=True)
        grid.add_column()
        for reading in found.readings:
            style = "" if reading.found else "dim"
            grid.add_row(Text(reading.name, style), _onset(reading), Text(reading.sentence, style))
        parts += [Text(), grid]
        if any(_COMPARED in reading.sentence for reading in found.readings):
            parts.append(
                Text(f"\n{_COMPARED}: what the drafter does at the same positions from real target features", "dim")
            )
    return Panel(Group(*parts), title=Text(title), title_align="left", border_style=colour, padding=(0, 1))


def _onset(reading: Reading) -> Text:
    if reading.found:
        return Text(f"from {reading.start}", "bold yellow")
    if reading.onset is None:
        return Text("-", "dim")
    return Text(reading.start, "green" if reading.start == "none" else "dim")


def _caption(summary: Mapping[str, Any], feed: str, counts: Mapping[str, int] | None) -> Text:
    steps = summary["steps" if feed == "drafted" else "text_fed_steps"]
    anchors = steps[0].get("acceptance", {}).get("anchors")
    fed = "each step embeds its own drafted token, as in serving" if feed == "drafted" else "each step embeds the text"
    if summary["checkpoint"].get("switches", {}).get("carry") == "none":
        fed = "later steps embed the mask token"
    parts = [f"{counts['prompts']} prompts" if counts else "", f"{anchors:,} anchors" if anchors else "", fed]
    return Text("\n" + "; ".join(part for part in parts if part), "dim")


def _legend(steps: Sequence[Mapping[str, Any]], left_out: Sequence[str], onset: bool, ascii_only: bool) -> Text:
    words = [
        "self: rows of the chain itself; excess: their attention beyond no drafting",
        "displaced: share of attention that moved",
        "joint: steps 1 to k accepted",
        "cond.: step k accepted where all before were",
    ]
    if any(figure(step, "growth") is not None for step in steps):
        words[:0] = [
            "growth: RMS of the carried state over step 1's, 95% interval over prompts",
            "matched: over the same position without drafting",
        ]
    if any(figure(step, "entropy") is not None for step in steps) and "entropy" not in left_out:
        words.insert(len(words) - 2, "entropy: of attention, nats")
    if onset:
        words.append(f"{'^v' if ascii_only else '▲▼'}: onset")
    text = "; ".join(words) + "."
    if left_out:
        text += f" Left out at this width: {', '.join(left_out)}."
    return Text(text, "dim")


def _lengths(summary: Mapping[str, Any]) -> Group:
    lengths, depth = summary["acceptance_length"], len(summary["steps"])
    grid = Table.grid(padding=(0, 2))
    for column in (False, False, True):
        grid.add_column(no_wrap=not column)

    def row(name: str, key: str, meaning: str, extra: str = "") -> None:
        value, ends = figure(lengths, key), bounds(lengths, key)
        if value is None:
            return
        interval = f" (95% {ends[0]:.2f} to {ends[1]:.2f})" if ends else ""
        grid.add_row(
            f"  {name}", Text.assemble((f"{value:.2f}", "bold"), (interval, "dim")), Text(meaning + extra, "dim")
        )

    deviation = lengths.get("served_sd")
    spread = f"; SD over rounds {deviation:.2f}" if deviation is not None else ""
    row("served", "served", "drafted tokens accepted per round, along the walk that an engine takes", spread)
    row("with bonus token", "served_with_bonus", f"the same and the target's own token: {logged(summary['settings'])}")
    row(
        "by request",
        "served_by_request",
        "mean of each prompt's own served length, as papers report; engines pool rounds",
    )
    row("anchor mean", "anchor_mean", "over every position outside loops: compares drafters, not an engine's figure")
    if figure(lengths, "served") is None:
        why = unconfirmed(summary["settings"]) or "the anchors of a prompt are not consecutive"
        grid.add_row("  served", "-", Text(f"not measured: {why}", "dim"))
    return Group(Text(f"\nAcceptance length at {depth} drafted tokens", "bold"), grid)


def logged(settings: Mapping[str, Any]) -> str:
    """What the served length with the bonus token compares with."""
    cut = settings.get("anchors")
    return "what vLLM logs" if cut is None else f"of the first {cut:,} positions of each text only, no engine's figure"


def _notes(summary: Mapping[str, Any], counts: Mapping[str, int] | None, codes: Container[str]) -> list[str]:
    """What is worth knowing and not among the findings, whose codes are given."""
    notes = []
    if (why := unconfirmed(summary["settings"])) is not None:
        notes.append(f"acceptance was not measured: {why}")
    if counts and counts.get("loop") and "DS301" not in codes:
        share = counts["loop"] / counts["anchors"]
        notes.append(
            f"{counts['loop']:,} of {counts['anchors']:,} anchors ({share:.0%}) lie where the target repeats itself:"
            " left out of every figure but the served length"
        )
    if counts and counts.get("near_tie") and "DS304" not in codes:
        notes.append(
            f"{counts['near_tie']:,} anchors have a near tie of the target within reach: kept here,"
            " left out of exact comparisons"
        )
    for where in (summary["settings"], summary["provenance"]):
        skipped = where.get("skipped_prompts") or where.get("skipped")
        text = _skipped(skipped) if skipped else ""
        if text:
            if "DS305" not in codes:
                notes.append(f"prompts left out: {text}")
            break
    steps = summary["steps"]
    sinks = summary["target"].get("sinks")
    if steps and sinks is not None and not sinks and "DS306" not in codes:
        notes.append("the target has no sink position: nothing counts as sink")
    elif sinks and list(sinks) != [0]:
        notes.append(f"sink positions: {', '.join(map(str, sinks))}")
    elif (summary["settings"].get("capture") or {}).get("sinks") == "assumed":
        notes.append("sink position: 0, which is assumed, as the target's attention was not captured (--sink)")
    return notes


def _skipped(skipped: Any) -> str:
    if isinstance(skipped, Mapping):
        return ", ".join(f"{count} {str(reason).replace('_', ' ')}" for reason, count in skipped.items() if count)
    if isinstance(skipped, list | tuple):
        return str(len(skipped))
    return str(skipped)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "none"
    if isinstance(value, list | tuple):
        return ", ".join(_value(item) for item in value)
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_value(item)}" for name, item in value.items())
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)
