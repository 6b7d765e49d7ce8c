"""A comparison on a terminal."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from driftscope.compare.design import FACTORS
from driftscope.compare.effects import POST, PRE, WITH, WITHOUT
from driftscope.compare.model import Compared, Comparison, Effect
from driftscope.compare.sentences import coverage, scope
from driftscope.findings.words import counted, plain
from driftscope.stats.intervals import Interval

_GOOD, _BAD = "green", "yellow"
_WIDE = 100
"""Below it intervals break between their ends."""
_EFFECTS = {
    ("fc_norm", PRE): "FC-norm\npre-norm",
    ("fc_norm", POST): "FC-norm\npost-norm",
    ("carry", WITHOUT): "post-norm\nno FC-norm",
    ("carry", WITH): "post-norm\nFC-norm",
    ("interaction", ""): "inter-\naction",
}


def render_comparison(comparison: Comparison, console: Console) -> None:
    """The answer, the figures of every run, effects or differences, and a sentence per quantity."""
    title = f"{counted(len(comparison.runs), 'drafter')} of {comparison.target}"
    console.print(Panel(Text(comparison.headline, "bold"), title=Text(title), title_align="left", padding=(0, 1)))
    about = f"{counted(comparison.prompts, 'prompt')}, {comparison.depth} steps"
    over = "training seeds and prompts" if comparison.design.repeated else "prompts"
    console.print(Text(f"\n{about}; below each figure its 95% interval over {over}, resampled alike for all", "dim"))
    between = ".." if console.width >= _WIDE else " to "
    console.print(_values(comparison, between))
    if comparison.design.kind == "factorial":
        console.print(Text("Effects: of each switch under both settings of the other", "bold"))
        console.print(_effects(comparison, between))
    elif any(part.differences for part in comparison.compared):
        console.print(Text(f"Differences to {comparison.runs[0]}", "bold"))
        console.print(_differences(comparison, between))
    if any(part.effects or part.differences for part in comparison.compared):
        console.print(_legend())
    sentences = [part.sentence for part in comparison.compared if part.sentence and part.quantity.key]
    if sentences:
        console.print(Text(f"\n{_scope(comparison)}", "bold"))
        console.print(_bullets(sentences, ""))
    if comparison.notes:
        console.print(Text("\nNotes", "bold"))
        console.print(_bullets(comparison.notes, "dim"))


def _scope(comparison: Comparison) -> str:
    return f"{scope(comparison.design)} ({coverage(comparison.design)})"


def _table() -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    table.add_column("", no_wrap=True)
    return table


def _values(comparison: Comparison, between: str) -> Table:
    table = _table()
    design = comparison.design
    if design.repeated:
        for cell, group in zip(design.cell_names, design.groups, strict=True):
            table.add_column(f"{cell}\n{counted(len(group), 'training')}", justify="right", overflow="fold")
        for part in comparison.compared:
            if part.cells:
                cells = (_value(part, part.cells.get(cell), between) for cell in design.cell_names)
                table.add_row(part.quantity.short, *cells)
        return table
    for place, (name, (fc_norm, post)) in enumerate(zip(comparison.runs, design.cells, strict=True)):
        held = [word for word, on in zip(FACTORS.values(), (fc_norm, post), strict=True) if on]
        told = "both" if len(held) == 2 else held[0] if held else "neither"
        told = "all at once" if place in design.at_once else told
        table.add_column(f"{name}\n{told}", justify="right", overflow="fold")
    for part in comparison.compared:
        table.add_row(part.quantity.short, *(_value(part, part.values.get(name), between) for name in comparison.runs))
    return table


def _effects(comparison: Comparison, between: str) -> Table:
    table = _table()
    shown = [part for part in comparison.compared if part.effects]
    for header in _EFFECTS.values():
        table.add_column(header, justify="right")
    for part in shown:
        cells = [
            _effect(part, part.effect(name, given), between, judge=name != "interaction") for name, given in _EFFECTS
        ]
        table.add_row(part.quantity.short, *cells)
    return table


def _differences(comparison: Comparison, between: str) -> Table:
    table = _table()
    for name in comparison.runs[1:]:
        table.add_column(name, justify="right", overflow="fold")
    for part in comparison.compared:
        if part.differences:
            table.add_row(
                part.quantity.label,
                *(_effect(part, part.differences.get(name), between) for name in comparison.runs[1:]),
            )
    return table


def _value(part: Compared, interval: Interval | None, between: str) -> Text:
    if interval is None:
        return Text("-", "dim")
    unit = "x" if part.quantity.unit == "x" else ""
    text = Text(plain(interval.mean, _digits(part)) + unit)
    if interval.low is not None and interval.high is not None:
        text.append(f"\n{plain(interval.low, _digits(part))}{between}{plain(interval.high, _digits(part))}", "dim")
    return text


def _effect(part: Compared, effect: Effect | None, between: str, *, judge: bool = True) -> Text:
    if effect is None:
        return Text("-", "dim")
    factor = effect.null == 1.0
    sign, times = not factor, "x" if factor else ""
    digits = _digits(part)
    style = "dim"
    if effect.direction in ("up", "down"):
        rises = effect.direction == "up"
        better = part.quantity.better
        style = "bold"
        if judge and better:
            style = f"bold {_GOOD if rises == (better == 'higher') else _BAD}"
    text = Text(f"{times}{plain(effect.interval.mean, digits, sign=sign)}", style)
    if effect.interval.low is not None and effect.interval.high is not None:
        ends = (plain(end, digits, sign=sign) for end in (effect.interval.low, effect.interval.high))
        text.append(f"\n{between.join(ends)}", "dim")
    return text


def _digits(part: Compared) -> int:
    return 3 if part.quantity.unit == "share a step" else 2


def _legend() -> Text:
    return Text.assemble(
        ("x is a factor, + and - a difference; ", "dim"),
        ("green", f"bold {_GOOD}"),
        (" better, ", "dim"),
        ("yellow", f"bold {_BAD}"),
        (" worse, dim where the interval holds no change", "dim"),
    )


def _bullets(lines: tuple[str, ...] | list[str], style: str) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column()
    for line in lines:
        grid.add_row(Text("-", "dim"), Text(line, style))
    return grid
