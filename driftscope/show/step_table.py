"""One table with a row per step, as wide as the terminal allows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from driftscope.findings.verdict import bounds, figure

_MASSES = {
    "sink": ("sink", "cyan"),
    "prompt": ("prompt", "blue"),
    "committed": ("commit.", "green"),
    "self_generated": ("self", "magenta"),
    "virtual": ("virtual", "white"),
}
_EIGHTHS = " ▏▎▍▌▋▊▉"
_DRIFTED = "bold yellow"
# rich would put an ASCII terminal's table into a full grid, which takes more room than was measured.
_ASCII_BOX = box.Box("    \n    \n -- \n    \n    \n    \n    \n    \n", ascii=True)

Step = Mapping[str, Any]


@dataclass(frozen=True)
class _Width:
    """What is shown at a width."""

    gap: int = 2
    bar: int = 6
    carry_rms: bool = True
    entropy: bool = True
    counts: bool = True
    interval: bool = True
    matched: bool = True
    joint: bool = True
    committed: bool = True


def _ladder() -> list[_Width]:
    """From everything to the least, in the order in which things are given up."""
    widths = [_Width(), _Width(bar=4)]
    for given_up in ("", "carry_rms", "entropy", "counts", "interval"):
        kept = replace(widths[-1], gap=1, **({given_up: False} if given_up else {}))
        widths += [replace(kept, bar=bar) for bar in (4, 3, 2)]
    widths.append(replace(widths[-1], bar=0))
    for given_up in ("matched", "joint", "committed"):
        widths.append(replace(widths[-1], **{given_up: False}))
    return widths


def step_table(
    steps: Sequence[Step], onset: Mapping[str, int | str], console: Console, width: int | None = None
) -> tuple[Table, list[str]]:
    """The widest table that fits into `width` (the console's), and the names of the figures left out for room."""
    room = width or console.width
    full = _Width()
    for shown in _ladder():
        table = _table(steps, onset, shown, ascii_only=console.options.ascii_only)
        if Measurement.get(console, console.options.update(width=1000), table).maximum <= room:
            break
    names = {
        "carry_rms": "carry RMS",
        "entropy": "entropy",
        "counts": "denominators of conditional acceptance",
        "interval": "growth's interval",
        "matched": "matched growth",
        "joint": "joint acceptance",
        "committed": "committed mass",
    }
    return table, [name for field, name in names.items() if getattr(full, field) and not getattr(shown, field)]


def _table(steps: Sequence[Step], onset: Mapping[str, int | str], shown: _Width, *, ascii_only: bool) -> Table:
    # The box itself sets columns one apart.
    table = Table(
        box=_ASCII_BOX if ascii_only else box.SIMPLE_HEAD,
        padding=(0, shown.gap - 1, 0, 0),
        pad_edge=False,
        header_style="bold",
    )
    cells: list[Callable[[Step], Text]] = []

    def column(header: str, cell: Callable[[Step], Text], justify: Any = "right") -> None:
        table.add_column(header, justify=justify, no_wrap=True, vertical="top")
        cells.append(cell)

    def marked(key: str, cell: Callable[[Step], Text]) -> Callable[[Step], Text]:
        return _marked(onset.get(key), "v" if key.endswith("down") else "^", cell, ascii_only)

    def number(header: str, *path: str, form: str = ".2f", key: str = "") -> None:
        if _measured(steps, *path):
            column(header, marked(key, lambda step: _number(figure(step, *path), form)))

    column("\nstep", lambda step: Text(str(step["step"]), "bold"))
    if shown.carry_rms and _measured(steps, "carry_rms"):
        column("carry\nRMS", _rms)
    if _measured(steps, "growth"):
        header = "\ngrowth" if shown.carry_rms and _measured(steps, "carry_rms") else "carry\ngrowth"
        column(header, marked("norm_up", lambda step: _growth(step, shown.interval)), "left")
    if shown.matched:
        number("\nmatched", "matched_growth")
    group = "attention\n" if shown.bar else "mass\n"
    for bucket, (name, colour) in _MASSES.items():
        if _measured(steps, "mass", bucket) and (shown.committed or bucket != "committed"):
            cell = _mass(bucket, colour, shown.bar, ascii_only)
            column(group + name, marked("sink_down", cell) if bucket == "sink" else cell, "left")
            group = "\n"
    number("self\nexcess", "excess", "self_generated", form="+.2f", key="self_up")
    number("dis-\nplaced", "displacement", key="displaced")
    if shown.entropy:
        number("\nentropy", "entropy")
    if shown.joint:
        number("accept\njoint", "acceptance", "joint")
    column("\ncond." if shown.joint else "accept\ncond.", lambda step: _conditional(step, shown.counts), "left")

    for step in steps:
        table.add_row(*(cell(step) for cell in cells))
    return table


def _measured(steps: Sequence[Step], *path: str) -> bool:
    return any(figure(step, *path) is not None for step in steps)


def _marked(
    start: int | str | None, arrow: str, cell: Callable[[Step], Text], ascii_only: bool
) -> Callable[[Step], Text]:
    """The cell with an arrow at the onset, and its figure bold from there on."""
    if not isinstance(start, int):
        return cell
    symbol = arrow if ascii_only else {"^": "▲", "v": "▼"}[arrow]

    def with_mark(step: Step) -> Text:
        text = cell(step)
        figure_end = len(text.plain.split(" ", 1)[0])
        if step["step"] >= start:
            text.stylize(_DRIFTED, 0, figure_end)
        return Text.assemble((symbol if step["step"] == start else " ", _DRIFTED), text)

    return with_mark


def _number(value: float | None, form: str) -> Text:
    if value is None:
        return Text("-", "dim")
    text = f"{value:{form}}"
    if float(text) == 0:
        text = text.replace("-", "+" if form.startswith("+") else "")
    return Text(text)


def _rms(step: Step) -> Text:
    value = figure(step, "carry_rms")
    return _number(value, "#.3g" if value is not None and value < 100 else ".0f")


def _growth(step: Step, interval: bool) -> Text:
    text = _number(figure(step, "growth"), ".2f")
    ends = bounds(step, "growth")
    if interval and ends and step["step"] > 1:
        text.append(f" {ends[0]:.2f}-{ends[1]:.2f}", "dim")
    return text


def _mass(bucket: str, colour: str, width: int, ascii_only: bool) -> Callable[[Step], Text]:
    def cell(step: Step) -> Text:
        value = figure(step, "mass", bucket)
        # Before step 2 nothing is self-generated, but for a block of masks: no mass to show.
        if value is None or (bucket == "self_generated" and step["step"] == 1 and not value):
            return Text("-", "dim")
        text = _number(value, ".2f")
        return text.append(" ").append(bar(value, width, ascii_only), colour) if width else text

    return cell


def bar(share: float, width: int, ascii_only: bool = False) -> str:
    """A bar of `share` (0 to 1) of `width` characters, padded to it."""
    eighths = round(max(0.0, min(1.0, share)) * width * 8)
    if ascii_only:
        return ("#" * round(eighths / 8)).ljust(width, ".")
    whole, rest = divmod(eighths, 8)
    return ("█" * whole + _EIGHTHS[rest].strip()).ljust(width)


def _conditional(step: Step, counts: bool) -> Text:
    text = _number(figure(step, "acceptance", "conditional"), ".2f")
    reached = step.get("acceptance", {}).get("conditional_denominator")
    return text.append(f" of {reached:,}", "dim") if counts and reached is not None else text
