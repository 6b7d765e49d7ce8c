"""Layers: what a step looks like, a deeper layer at the same row or the next position's features."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

import numpy as np
import pandas as pd

from driftscope import stats
from driftscope.figures.grids import Grids, over_prompts, prompts_and_depth, put
from driftscope.runs.prompt_sums import divided
from driftscope.stats.intervals import Floats

ROWS = ("next", "same", "anchor")
LEAST = 0.2
"""CKA under which a step looks like none of the boundaries."""
_WORDS = {
    "next": "the next position's features",
    "same": "a deeper layer at the same row",
    "anchor": "the anchor that the chain started from",
    "neither": "neither the next position's features nor a layer at the same row",
    "not measurable": "nothing that could be measured",
}


def layers_figures(similarity: pd.DataFrame, *, resamples: int = stats.RESAMPLES) -> dict[str, Any]:
    """From the `similarity` rows of the probe; {} without any.

    `boundaries`, and `steps` with `cka` and `cos` by row of the target (`next` t+k, `same` t+k-1, `anchor` t): one figure
    per boundary; `best`, per row, the boundary with the highest CKA; `looks_like`. The last is the row whose best boundary
    beats the best ones of both other rows by a difference whose interval over prompts excludes 0, with a CKA of 0.2 or more;
    "neither" without one; "not measurable" with too few prompts for an interval. At step 1 `same` and `anchor` are one row.
    `sentence` says it in words for the steps from 2 on.
    """
    rows = similarity[similarity["feed"] == "text"]
    if rows.empty:
        return {}
    prompts, depth = prompts_and_depth(rows)
    boundaries = sorted(int(b) for b in rows["boundary"].unique())
    grids = Grids(rows, prompts, depth, by=("row", "boundary"))
    cka = _stack(grids, "cka", boundaries)
    cosine = divided(_stack(grids, "sum_cos", boundaries), _stack(grids, "anchors", boundaries))
    figures = {"cka": stats.bca(cka, resamples=resamples), "cos": stats.bca(cosine, resamples=resamples)}
    steps = []
    for place in range(depth):
        step: dict[str, Any] = {"step": place + 1}
        for name, intervals in figures.items():
            by_row = {row: _by_boundary(intervals[i, :, place], boundaries) for i, row in enumerate(ROWS)}
            if any(by_row.values()):
                step[name] = by_row
        step |= _looks_like(cka[..., place], boundaries, place + 1, resamples)
        steps.append(step)
    return {"boundaries": boundaries, "steps": steps, "sentence": sentence([s["looks_like"] for s in steps])}


def sentence(looks: list[str]) -> str:
    """In words what each step from 2 on looks like; `looks[0]` is step 1."""
    parts = []
    for kind, group in groupby(enumerate(looks[1:], start=2), key=lambda entry: entry[1]):
        steps = [step for step, _ in group]
        which = f"step {steps[0]} looks" if len(steps) == 1 else f"steps {steps[0]} to {steps[-1]} look"
        parts.append(f"{which} like {_WORDS[kind]}")
    return "; ".join(parts) or "no step was carried"


def _stack(grids: Grids, column: str, boundaries: list[int]) -> Floats:
    """[prompt, row, boundary, step]."""
    by_row = [np.stack([grids.sum(column, (row, boundary)) for boundary in boundaries], 1) for row in ROWS]
    return np.stack(by_row, 1)


def _by_boundary(intervals: stats.Intervals, boundaries: list[int]) -> list[dict[str, Any]]:
    found = []
    for place, boundary in enumerate(boundaries):
        interval = intervals.at(place)
        if interval is not None:
            found.append({"boundary": boundary, **interval.to_dict()})
    return found


def _looks_like(cka: Floats, boundaries: list[int], step: int, resamples: int) -> dict[str, Any]:
    """From `cka[prompt, row, boundary]` of one step."""
    means = over_prompts(cka)
    if not np.isfinite(means).all():
        return {"looks_like": "not measurable"}
    chosen = means.argmax(1)
    best = cka[:, np.arange(len(ROWS)), chosen]
    height = means.max(1)
    found: dict[str, Any] = {"best": {}}
    for place, row in enumerate(ROWS):
        found["best"][row] = {"boundary": boundaries[chosen[place]]}
        put(found["best"][row], "cka", stats.bca(best, resamples=resamples), place)
    # At step 1 the anchor's row is the same row.
    rivals = [0, 1] if step == 1 else [0, 1, 2]
    first = max(rivals, key=lambda place: height[place])
    others = [place for place in rivals if place != first]
    ahead = stats.bca(best[:, [first]] - best[:, others], resamples=resamples)
    if not np.isfinite(ahead.low).all():
        return {**found, "looks_like": "not measurable"}
    clear = bool((ahead.low > 0).all()) and height[first] >= LEAST
    return {**found, "looks_like": ROWS[first] if clear else "neither"}


def layers_rows(figures: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Likeness of the carry to the target's `boundary` at `row` (next t+k, same t+k-1, anchor t), per step: `quantity` cka
    and cos, both 0 to 1 at the most, and best_cka, that of the likest boundary."""
    for step in figures.get("steps", ()):
        for name in ("cka", "cos"):
            for row, entries in step.get(name, {}).items():
                yield from ({"step": step["step"], "row": row, "quantity": name, **entry} for entry in entries)
        for row, best in step.get("best", {}).items():
            if "cka" in best:
                axes = {"step": step["step"], "row": row, "boundary": best["boundary"], "quantity": "best_cka"}
                yield {**axes, **best["cka"]}
