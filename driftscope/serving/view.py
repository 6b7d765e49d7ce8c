"""A diagnosis on a terminal: the answer, what to look at, the counters by position, and every reading that was walked."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from driftscope.findings.words import counted
from driftscope.serving.diagnosis import Diagnosis, Ranked
from driftscope.serving.golden import Gate
from driftscope.serving.hints import started_with
from driftscope.serving.words import explanation, finding, headline, next_steps

_COLOURS = {"same": "green", "less": "red", "more": "yellow", "cannot tell": "yellow"}
_SHOWN = 8


def render_diagnosis(found: Diagnosis, console: Console, *, run: str, every: bool = False) -> None:
    """Print it; with `every` all readings, those that were not walked included."""
    colour = _COLOURS[found.outcome]
    told = finding(found)
    lines = [Text(f"{headline(found)[:1].upper()}{headline(found)[1:]}.", f"bold {colour}")]
    if said := explanation(found):
        lines.append(Text(f"{said[:1].upper()}{said[1:]}.", "bold"))
    counters = found.counters
    title = f"{counters.name} against {run}"
    body = Text("\n").join(lines)
    console.print(Panel(body, title=Text(title), title_align="left", border_style=colour, padding=(0, 1)))
    console.print(
        _grid([(Text("counted", "dim"), Text(_counted(found))), (Text("bonus", "dim"), Text(counters.bonus))])
    )
    for note in counters.notes:
        console.print(_grid([(Text("note", "bold"), Text(note))]))
    if told is not None:
        console.print(_grid([(Text(told.code, f"bold {colour}"), Text(told.title, "bold"))]))
    for step in next_steps(found):
        console.print(_grid([(Text("look at", "dim"), Text(step))]))
    if told is not None and (flags := started_with(counters.engine)):
        console.print(_grid([(Text("first", "dim"), Text(flags, "dim"))]))
    console.print(_positions(found))
    if len(found.ranked) > 1:
        console.print(_readings(found, every))
    if every and found.not_walked:
        console.print(Text("Not walked", "bold"))
        for part in found.not_walked:
            console.print(Text(f"- {part.name}: {part.reason}", "dim"))
    if told is not None:
        console.print(Text(f"\nwhat the code means: driftscope explain {told.code}", "dim"), soft_wrap=True)


def render_gate(gate: Gate, console: Console) -> None:
    """The verdict of a golden file."""
    colour = {"passed": "green", "failed": "red", "unknown": "yellow"}[gate.verdict]
    console.print(
        Text.assemble((f"golden file: {gate.verdict}  ", f"bold {colour}"), gate.sentences[0]), soft_wrap=True
    )
    for sentence in gate.sentences[1:]:
        console.print(Text(f"  {sentence}", "dim"), soft_wrap=True)


def _counted(found: Diagnosis) -> str:
    counters = found.counters
    parts = [f"{counters.source}: {counted(counters.drafts, 'draft')} of {counted(counters.tokens, 'token')}"]
    parts.append(f"{counters.accepted:,} accepted, {1 + counters.length:.2f} tokens a step with the target's own")
    if counters.requests:
        parts.append(counted(counters.requests, "request"))
    parts.append(
        "the run's very prompts" if found.traffic.same_prompts
        else "prompts of the run's kinds" if found.traffic.alike else "other prompts than the run's, of any kind"
    )  # fmt: skip
    return "; ".join(parts)


def _positions(found: Diagnosis) -> Table:
    counters = found.counters
    table = Table(title="Accepted, share of drafts", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("position")
    shares = counters.shares
    names = [str(place) for place in range(1, len(shares) + 1)] if shares is not None else []
    for name in [*names, "tokens"]:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_row("engine", *(_share(value) for value in shares or ()), f"{counters.length:.3f}")
    row = found.declared
    table.add_row("walk", *(_share(value) for value in (row.shares or ())[: len(names)]), f"{row.length or 0.0:.3f}")
    if names:
        ends = [f"{low:.2f}-{high:.2f}" for low, high in zip(found.low, found.high, strict=True)]
        table.add_row(
            Text("  may lie", "dim"), *(Text(end, "dim") for end in [*ends, *[""] * (len(names) - len(ends))]), ""
        )
    best = found.tied[0] if found.tied else None
    if best is not None and best is not row:
        values = (best.shares or ())[: len(names)]
        table.add_row(
            Text(best.reading.name, "bold"), *(_share(value) for value in values), f"{best.length or 0.0:.3f}"
        )
    return table


def _readings(found: Diagnosis, every: bool) -> Table:
    out = sum(part.excluded for part in found.ranked)
    title = f"Readings of the checkpoint, the likeliest first ({out} of {len(found.ranked)} excluded by the counters)"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("reading", overflow="fold")
    table.add_column("predicts", no_wrap=True)
    for header in ("tokens", "p", "log likelihood"):
        table.add_column(header, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    kept = found.ranked if every else found.ranked[:_SHOWN]
    tied = {id(part) for part in found.tied}
    for part in [*kept, *([] if found.declared in kept else [found.declared])]:
        table.add_row(*_row(part, id(part) in tied, len(found.counters.shares or ())))
    if len(found.ranked) > len(kept):
        table.caption = f"{len(found.ranked) - len(kept)} more: --all"
        table.caption_justify = "left"
    return table


def _row(part: Ranked, tied: bool, positions: int) -> list[Text]:
    style = "dim" if part.excluded else ""
    name = "as the run reads it" if not part.reading.switch else part.reading.name
    status = Text("excluded", "dim") if part.excluded else Text("ties", "bold") if tied else Text("possible")
    values = " ".join(_share(value) for value in (part.shares or ())[:positions])
    figures = [values, f"{part.length or 0.0:.3f}", f"{part.p or 0.0:.3f}", f"{part.log_likelihood or 0.0:.1f}"]
    return [Text(name, style), *(Text(figure, style) for figure in figures), status]


def _share(value: float) -> str:
    return f"{value:.3f}".removeprefix("0")


def _grid(rows: list[tuple[Text, Text]]) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True, min_width=7)
    grid.add_column()
    for row in rows:
        grid.add_row(*row)
    return grid
