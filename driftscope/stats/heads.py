"""Which heads drift most."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from driftscope.stats.intervals import MIN_PROMPTS, RESAMPLES, Interval, bca
from driftscope.stats.trend import holm


@dataclass(frozen=True)
class HeadDrift:
    """One head in the ranking, strongest first."""

    layer: int
    head: int
    drift: Interval
    p_value: float | None
    """Two-sided Wilcoxon signed-rank test over prompts, adjusted by Holm over all heads; None with too few prompts."""


def rank_heads(drift: ArrayLike, *, resamples: int = RESAMPLES) -> list[HeadDrift]:
    """Heads by the size of their mean drift, of `drift[prompt, layer, head]` (a jump, a slope, an excess at a step).

    The adjusted p-value, unlike the interval of the top head, allows for having looked at every head.
    """
    data = np.asarray(drift, dtype=np.float64)
    figures = bca(data, resamples=resamples)
    p_values = np.full(data.shape[1:], np.nan)
    enough = np.isfinite(data).sum(axis=0) >= MIN_PROMPTS
    if enough.any():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            p_values[enough] = stats.wilcoxon(data[:, enough], axis=0, nan_policy="omit").pvalue
        # Differences of 0 throughout leave nothing to rank: no drift.
        p_values[enough & np.isnan(p_values)] = 1.0
    p_values = holm(p_values)
    ranking = []
    for layer, head in np.ndindex(*data.shape[1:]):
        interval = figures.at(layer, head)
        if interval is not None:
            p_value = float(p_values[layer, head])
            ranking.append(HeadDrift(layer, head, interval, p_value if np.isfinite(p_value) else None))
    return sorted(ranking, key=lambda entry: -abs(entry.drift.mean))
