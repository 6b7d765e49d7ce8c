"""Does the drafter know when it is right? Its probability of the token that it drafts beside how often that is accepted."""

from __future__ import annotations

from typing import Any

import numpy as np

from driftscope import stats
from driftscope.figures.grids import put
from driftscope.planning.rounds import Drafts
from driftscope.stats.contrasts import contrasts
from driftscope.stats.intervals import Floats

BINS = 10


def calibration(drafts: Drafts, *, resamples: int = stats.RESAMPLES) -> list[dict[str, Any]]:
    """Per step, over chains outside loops whose earlier tokens were accepted: mean `confidence`, share `accepted`, and `ece`, the
    expected calibration error over ten bins of equal width, sum over bins of |accepted - confidence| weighted by their chains;
    `bins` with both. It is never below 0: with few chains chance alone makes it a few hundredths. [] where no probabilities
    were stored. Source: Guo et al., On Calibration of Modern Neural Networks (2017), equation 3.
    """
    if not np.isfinite(drafts.confidence).all():
        return []
    found = []
    for step in range(drafts.depth):
        alive = (drafts.length >= step) & ~drafts.loop
        if int(alive.sum()) < stats.MIN_DENOMINATOR:
            continue
        found.append({"step": step + 1, **_step(drafts, alive, step, resamples)})
    return found


def _step(drafts: Drafts, alive: Any, step: int, resamples: int) -> dict[str, Any]:
    confidence, right = drafts.confidence[alive, step], (drafts.length[alive] > step).astype(np.float64)
    place = np.minimum((confidence * BINS).astype(np.int64), BINS - 1)
    cell = drafts.prompt[alive] * BINS + place

    def sums(values: Any) -> Floats:
        shape = len(drafts.prompts), BINS
        return np.bincount(cell, values, minlength=shape[0] * shape[1]).astype(np.float64).reshape(shape)

    count, sure, hits = sums(None), sums(confidence), sums(right)
    entry: dict[str, Any] = {"chains": int(count.sum())}
    total = count.sum(1)
    put(entry, "confidence", stats.ratio_of_sums(sure.sum(1), total, resamples=resamples))
    put(entry, "accepted", stats.ratio_of_sums(hits.sum(1), total, resamples=resamples))
    gaps = (hits - sure).T
    error = contrasts([[total, *gaps]], [[1.0]], _expected_error, resamples=resamples)
    put(entry, "ece", error, 0)
    entry["bins"] = [
        {"from": b / BINS, "chains": int(n), "confidence": float(c / n), "accepted": float(h / n)}
        for b, (n, c, h) in enumerate(zip(count.sum(0), sure.sum(0), hits.sum(0), strict=True))
        if n
    ]
    return entry


def _expected_error(total: Floats, *gaps: Floats) -> Floats:
    return np.asarray(sum(np.abs(gap) for gap in gaps) / total)
