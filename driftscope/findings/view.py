"""Findings and their pages on a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from driftscope.findings import thresholds as limits
from driftscope.findings.model import Assessment, Definition, Finding, Kind, kind_of
from driftscope.findings.thresholds import Thresholds
from driftscope.findings.words import listed

_COLOURS: dict[Kind, str] = {"drift": "yellow", "checkpoint": "red", "note": "blue", "engine": "magenta"}
_KINDS: dict[Kind, str] = {
    "drift": "Drift",
    "checkpoint": "Checkpoint not run as trained",
    "note": "Notes on the data",
    "engine": "An engine that does not serve what the walk serves",
}


def render_findings(assessment: Assessment, console: Console, *, advice: bool = True) -> None:
    """Findings with their evidence and advice, then what could not be asked."""
    wrong, notes = assessment.wrong, [part for part in assessment.findings if part.kind == "note"]
    if wrong:
        console.print(Text("\nFindings", "bold"))
        for finding in wrong:
            console.print(_finding(finding, advice))
    for title, drift in (("Notes on drift", True), ("Notes on the data", False)):
        here = [part for part in notes if (kind_of(part.code) == "drift") == drift]
        if here:
            console.print(Text(f"\n{title}", "bold"))
        for finding in here:
            # What moves for nothing needs no cure.
            console.print(_finding(finding, advice and finding.code == "DS111"))
    if assessment.unmeasured:
        console.print(Text("\nNot asked", "bold"))
        by_reason: dict[str, list[str]] = {}
        for part in assessment.unmeasured:
            by_reason.setdefault(part.reason, []).append(part.code)
        console.print(_rows([(Text(", ".join(codes), "dim"), Text(why, "dim")) for why, codes in by_reason.items()]))
    if wrong or notes:
        codes = [finding.code for finding in (*wrong, *notes)]
        console.print(Text(f"\nwhat a code means: driftscope explain {codes[0]}", "dim"), soft_wrap=True)


def _finding(finding: Finding, advice: bool) -> RenderableType:
    colour = _COLOURS[finding.kind]
    rows: list[tuple[Text, RenderableType]] = [
        (Text(finding.code, f"bold {colour}"), Text.assemble((finding.title, "bold"), ". ", finding.statement))
    ]
    if advice:
        rows += [(Text("try", "dim"), Text(line, "dim")) for line in finding.advice[:1]]
    return _rows(rows)


def render_list(definitions: Sequence[Definition], console: Console) -> None:
    """All codes by kind."""
    for kind, title in _KINDS.items():
        here = [definition for definition in definitions if definition.kind == kind]
        if here:
            console.print(Text(f"\n{title}", "bold"))
            console.print(_rows([(Text(part.code, f"bold {_COLOURS[kind]}"), Text(part.title)) for part in here]))
    console.print(Text("\nThe page of one: driftscope explain DS101", "dim"), soft_wrap=True)


def render_page(definition: Definition, values: Thresholds, console: Console) -> None:
    """The page of a code, with the thresholds in force."""
    colour = _COLOURS[definition.kind]
    parts: list[RenderableType] = [Text.assemble((definition.code, f"bold {colour}"), "  ", (definition.title, "bold"))]

    def section(title: str, *content: RenderableType) -> None:
        parts.extend([Text(f"\n{title}", "bold"), *(Padding(part, (0, 0, 0, 2)) for part in content)])

    section("What it means", Text(definition.meaning))
    section("How it is measured", Text(definition.measured))
    if definition.thresholds:
        section("Beyond which", *(_threshold(name, values) for name in definition.thresholds))
    section("What it does not say", Text(definition.limits))
    section("What to try", _rows([(Text("-", "dim"), Text(line)) for line in definition.advice]))
    if definition.kind == "checkpoint":
        section("Measured by", Text("driftscope audit CHECKPOINT"))
    elif definition.kind == "engine":
        section("Measured by", Text("driftscope engine RUN --metrics FILE"))
    elif definition.probes:
        section("Measured by", Text(f"driftscope probe CHECKPOINT --probes {','.join(definition.probes)}"))
    if definition.sources:
        section("Sources", _rows([(Text("-", "dim"), Text(line)) for line in definition.sources]))
    console.print(Group(*parts))


def _threshold(name: str, values: Thresholds) -> RenderableType:
    about, value = limits.definition(name), values[name]
    text = Text.assemble((name, "bold"), " = ", (f"{value:g}", "bold"), f", {about.meaning}. ")
    if values.changed(name):
        return text.append(f"Set in {values.origin}; the default is {about.default:g}. {about.reason}", "dim")
    return text.append(about.reason, "dim")


def _rows(rows: Sequence[tuple[Text, RenderableType]]) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True, min_width=1)
    grid.add_column()
    for row in rows:
        grid.add_row(*row)
    return grid


def summary_line(assessment: Assessment) -> str:
    """One plain line: which codes were found, or why nothing can be said."""
    if assessment.wrong:
        return f"found {listed([finding.code for finding in assessment.wrong])}"
    if assessment.withheld:
        return assessment.withheld
    if assessment.judged:
        return "nothing found beyond the thresholds"
    reasons = [part.reason for part in assessment.unmeasured if part.code in ("DS101", "DS102")]
    reasons = reasons or [part.reason for part in assessment.unmeasured if part.code == "DS105"]
    return f"too little could be measured to say: {listed(list(dict.fromkeys(reasons)))}"
