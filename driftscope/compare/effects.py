"""Values of every run, differences to the first, and the effects of a 2 x 2."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from driftscope.compare.design import Design
from driftscope.compare.model import Compared, Effect
from driftscope.compare.samples import Sample
from driftscope.stats.contrasts import contrasts
from driftscope.stats.intervals import Floats, Interval

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


def _effects(found: Sequence[Interval | None], null: float) -> tuple[Effect, ...]:
    pairs: Any = zip(FACTORIAL, found, strict=True)
    return tuple(Effect(name, given, interval, null) for (name, given), interval in pairs if interval is not None)
