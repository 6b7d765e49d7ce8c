"""An audit on a terminal: the verdict, what to do, then every hypothesis."""

from __future__ import annotations

from collections import Counter
from typing import Any

from rich import box
from rich.console import Console, Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from driftscope.audit.batches import DEPTH, FIRST
from driftscope.audit.fix import Fixed
from driftscope.audit.report import Audit, Fault, Row
from driftscope.findings.model import Finding
from driftscope.stats.intervals import Interval

_OUTCOME = {"holds": "green", "misconfigured": "red", "cannot tell": "yellow"}
_STATUS = {"better": "bold red", "worse": "green", "indistinguishable": "dim", "ruled out": "dim"}


def render_audit(audit: Audit, console: Console, *, every: bool = False) -> None:
    """Print an audit; with `every` also the hypotheses that were ruled out and those of later rounds."""
    colour = _OUTCOME[audit.outcome]
    parts = [Text(audit.verdict, f"bold {colour}")]
    title = f"audit of {audit.checkpoint}, drafting for {audit.target}"
    console.print(Panel(Group(*parts), title=Text(title), title_align="left", border_style=colour, padding=(0, 1)))
    for line in audit.unsettled:
        console.print(Text.assemble(("not settled  ", "bold yellow"), (line, "yellow")))
    for fault in audit.faults:
        console.print(_fault(fault))
    for finding in audit.static:
        console.print(_static(finding))
    console.print(_declared(audit))
    console.print(_controls(audit))
    console.print(_hypotheses(audit, every))
    counts = Counter(row.status for row in audit.rows)
    listed = ", ".join(f"{count} {status}" for status, count in counts.items())
    rounds = max(row.round for row in audit.rows)
    few = sum(row.status != "ruled out" and not row.searched and row.prompts < audit.prompts for row in audit.rows)
    early = f" {few} were settled by the first {FIRST} prompts." if few else ""
    console.print(
        Text(
            f"{listed}; {audit.prompts} prompts, {audit.anchors} anchors, {audit.seconds:.0f} s.{early} One change at a time, the"
            f" best one kept before the next round (greedy); {rounds} round{'s' * (rounds > 1)}. Differences are to the"
            " declared setting, positive is better; p is against the largest difference that chance makes among all of"
            " them.",
            "dim",
        )
    )
    notes = [hint.statement for hint in audit.hints] + list(audit.warnings)
    if notes:
        console.print(Text("\nOf no consequence here, as measured", "bold") if audit.outcome != "cannot tell" else "")
        for note in notes:
            console.print(Text(f"- {note}", "dim"))


def render_fix(fixed: Fixed | None, console: Console) -> None:
    """What a corrected copy changed, and what it could not."""
    if fixed is None:
        console.print("nothing to fix: no copy written")
        return
    console.print(f"\ncorrected copy in {fixed.folder}", soft_wrap=True, highlight=False)
    for key, (before, after) in fixed.config.items():
        console.print(Text(f"  config.json: {key} was {before!r}, is {after!r}"))
    for name in fixed.tensors:
        console.print(Text(f"  tensor {name} changed"))
    for word in fixed.left:
        console.print(Text(f"  not expressed: {word}", "yellow"))


def _fault(fault: Fault) -> Table:
    finding = fault.finding
    statement = Text.assemble((finding.title, "bold"), ". ", finding.statement)
    return _rows(
        [(Text(finding.code, "bold red"), statement), *((Text("try", "dim"), Text(s)) for s in finding.advice)]
    )


def _static(finding: Finding) -> Table:
    statement = Text.assemble((finding.title, "bold"), " (seen in the files). ", finding.statement)
    return _rows(
        [(Text(finding.code, "bold red"), statement), *((Text("try", "dim"), Text(s)) for s in finding.advice)]
    )


def _rows(rows: list[tuple[Text, Text]]) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column()
    for row in rows:
        grid.add_row(*row)
    return grid


def _declared(audit: Audit) -> Table:
    base = audit.baseline
    table = Table(title="The declared setting", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("step")
    for step in range(1, DEPTH + 1):
        table.add_column(str(step), justify="right")
    table.add_row("loss, nats", *(f"{value:.2f}" for value in base.loss))
    table.add_row("top-1 agreement, text-fed", *(f"{value:.2f}" for value in base.agreement))
    table.add_row("conditional acceptance, drafted", *("-" if v is None else f"{v:.2f}" for v in base.acceptance))
    return table


def _controls(audit: Audit) -> Table:
    table = Table(title="Negative controls, step 1", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("control", no_wrap=True)
    for header in ("loss", "top-1", "setting is better by", "", "p"):
        table.add_column(header, justify="right", no_wrap=True)
    table.add_column("told apart")
    for index, control in enumerate(audit.controls):
        suffix = " (corrected setting)" if index >= len(audit.controls) // 2 and len(audit.controls) > 3 else ""
        table.add_row(
            control.name + suffix,
            f"{control.loss:.2f}",
            f"{control.agreement:.2f}",
            f"{control.margin_loss:+.2f} nats",
            f"{control.margin_agreement:+.2f}",
            f"{control.p:.4f}",
            Text("yes", "green") if control.beaten else Text("no", "bold yellow"),
        )
    return table


def _hypotheses(audit: Audit, every: bool) -> Group:
    table = Table(title="Hypotheses", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("switch", overflow="fold")
    table.add_column("alternative", overflow="fold")
    table.add_column("status", no_wrap=True)
    for header in ("loss 1", "2 on", "top-1, 1", "2 on", "p"):
        table.add_column(header, justify="right", no_wrap=True)
    shown = [row for row in audit.rows if (every or row.round == 1) and row.status != "ruled out"]
    before = ""
    for row in shown:
        switch = f"{row.switch} = {row.declared}" + (f" (round {row.round})" if row.round > 1 else "")
        table.add_row(
            "" if switch == before else switch,
            row.alternative,
            Text(row.status + (" *" if row.reason else ""), _STATUS[row.status]),
            _figure(row.loss_first),
            _figure(row.loss_later),
            _figure(row.agreement_first),
            _figure(row.agreement_later),
            _p(row),
        )
        before = switch
    reasons = [Text(f"* {row.name}: {row.reason}", "dim") for row in shown if row.reason]
    out = [row for row in audit.rows if row.status == "ruled out" and (every or row.round == 1)]
    parts: list[Any] = [table, *reasons]
    if out and every:
        parts.append(Text("Ruled out without a run", "bold"))
        parts += [Text(f"- {row.switch} = {row.declared}, not {row.alternative}: {row.reason}", "dim") for row in out]
    elif out:
        switches = ", ".join(dict.fromkeys(row.switch for row in out))
        parts.append(Text(f"Ruled out without a run ({len(out)}; --all says why): {switches}", "dim"))
    return Group(*parts)


def _figure(value: Interval | None) -> str:
    if value is None:
        return "-"
    return "0" if abs(value.mean) < 5e-4 else f"{value.mean:+.2f}"


def _p(row: Row) -> str:
    known = [p for p in (row.p_better, row.p_worse) if p is not None]
    return f"{min(known):.4f}" if known else "-"
