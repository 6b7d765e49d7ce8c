"""Values of every run, differences to the first, and the effects of a 2 x 2."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from driftscope.compare.design import Design
from driftscope.compare.model import Compared, Effect
from driftscope.compare.quantity import Sample
from driftscope.stats.contrasts import contrasts
from driftscope.stats.intervals import Floats, Interval, Intervals
from driftscope.stats.mixed import mixed_contrasts

PRE, POST, WITHOUT, WITH = "pre-norm carry", "post-norm carry", "without FC-norm", "with FC-norm"
# Runs in the order neither, FC-norm, post-norm, both.
FACTORIAL = {
    ("fc_norm", PRE): (-1.0, 1.0, 0.0, 0.0),
    ("fc_norm", POST): (0.0, 0.0, -1.0, 1.0),
    ("fc_norm", ""): (-0.5, 0.5, -0.5, 0.5),
    ("carry", WITHOUT): (-1.0, 0.0, 1.0, 0.0),
    ("carry", WITH): (0.0, -1.0, 0.0, 1.0),
    ("carry", ""): (-0.5, -0.5, 0.5, 0.5),
    ("interaction", ""): (1.0, -1.0, -1.0, 1.0),
}


def compare_samples(
    by_run: Sequence[dict[str, Sample]], names: Sequence[str], design: Design, resamples: int
) -> list[Compared]:
    """One entry per quantity that any run has, without sentences."""
    known = dict.fromkeys(name for found in by_run for name in found)
    return [_compared([found.get(name) for found in by_run], names, design, resamples) for name in known]


def _compared(given: Sequence[Sample | None], names: Sequence[str], design: Design, resamples: int) -> Compared:
    if design.repeated:
        return _over_seeds(given, names, design, resamples)
    held = [place for place, sample in enumerate(given) if sample is not None]
    present = [sample for sample in given if sample is not None]
    quantity = present[0].quantity
    count = len(present)
    rows: list[Floats] = list(np.eye(count))
    first_is_here = held[0] == 0
    if first_is_here:
        rows += list(np.eye(count)[1:] - np.eye(count)[0])
    factorial = design.kind == "factorial" and count == 4
    if factorial:
        for weights in FACTORIAL.values():
            row = np.zeros(4)
            row[list(design.order)] = weights
            rows.append(row)
    # One figure for all: noise levels may differ between runs, and then so do the parts.
    if len({len(sample.parts) for sample in present}) > 1:
        return Compared(quantity, {})
    figures = contrasts([sample.parts for sample in present], np.array(rows), present[0].figure, resamples=resamples)
    null = 0.0
    if quantity.scale == "log":
        figures, null = figures.map(np.exp), 1.0
    found = [figures.at(place) for place in range(len(rows))]
    values = {names[held[place]]: interval for place, interval in enumerate(found[:count]) if interval is not None}
    differences: dict[str, Effect] = {}
    if first_is_here:
        for place, interval in zip(held[1:], found[count:], strict=False):
            if interval is not None:
                differences[names[place]] = Effect("difference", "", interval, null)
    effects = _effects(found[2 * count - 1 :], null) if factorial else ()
    return Compared(quantity, values, differences, effects)


def _over_seeds(given: Sequence[Sample | None], names: Sequence[str], design: Design, resamples: int) -> Compared:
    """Cells of several trainings: a value per run over its prompts; per cell and effect, intervals over seeds and prompts."""
    present = {place: sample for place, sample in enumerate(given) if sample is not None}
    quantity = next(iter(present.values())).quantity
    null = 1.0 if quantity.scale == "log" else 0.0

    def scaled(figures: Intervals) -> Intervals:
        return figures.map(np.exp) if quantity.scale == "log" else figures

    values = {}
    for place, sample in present.items():
        alone = scaled(contrasts([sample.parts], [[1.0]], sample.figure, resamples=resamples)).at(0)
        if alone is not None:
            values[names[place]] = alone
    runs = [place for group in design.groups for place in group]
    if any(place not in present for place in runs) or len({len(sample.parts) for sample in present.values()}) > 1:
        return Compared(quantity, values)
    wanted = FACTORIAL if design.kind == "factorial" else {(design.factor, ""): (-1.0, 1.0)}
    rows = [*np.eye(len(design.groups)), *wanted.values()]
    cells = [number for number, group in enumerate(design.groups) for _ in group]
    parts = [present[place].parts for place in runs]
    found = scaled(mixed_contrasts(parts, cells, np.array(rows), present[runs[0]].figure, resamples=resamples))
    figures = [found.at(place) for place in range(len(rows))]
    count = len(design.groups)
    by_cell = {name: figure for name, figure in zip(design.cell_names, figures, strict=False) if figure is not None}
    effects = tuple(
        Effect(name, where, figure, null)
        for (name, where), figure in zip(wanted, figures[count:], strict=True)
        if figure is not None
    )
    return Compared(quantity, values, effects=effects, cells=by_cell)


def _effects(found: Sequence[Interval | None], null: float) -> tuple[Effect, ...]:
    pairs: Any = zip(FACTORIAL, found, strict=True)
    return tuple(Effect(name, given, interval, null) for (name, given), interval in pairs if interval is not None)
