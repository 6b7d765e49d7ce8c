"""Contrasts between runs on the same prompts: differences, simple effects and interactions, with intervals over prompts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from driftscope.stats.intervals import RESAMPLES, SEED, Floats, Intervals, _blank, _fill
from driftscope.stats.resampling import Figure, ratio, relative

__all__ = ["Figure", "contrasts", "log_half_point", "ratio", "relative"]


def contrasts(
    samples: Sequence[Sequence[ArrayLike]],
    weights: ArrayLike,
    figure: Figure,
    *,
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> Intervals:
    """[contrast]: sum over runs of `weights[contrast, run]` * figure(sums of the run's parts over prompts).

    `samples[run][part]` are arrays [prompt]; the prompts are resampled for all runs together, and one that lacks a part
    in any run is left out. A figure of two parts, their ratio, is a ratio of sums, and a mean if the second part is 1.
    """
    weight = np.atleast_2d(np.asarray(weights, dtype=np.float64))
    data = np.array([[np.asarray(part, dtype=np.float64) for part in sample] for sample in samples])
    runs, parts, _ = data.shape
    result = _blank((len(weight),))
    kept = data[..., np.isfinite(data).all(axis=(0, 1))]
    if not kept.size:
        return result
    columns = [part[:, None] for part in kept.reshape(runs * parts, -1)]

    def statistic(*sums: Floats) -> Floats:
        """[1, draw] -> [contrast, draw]."""
        total: Floats = np.zeros((len(weight), sums[0].shape[1]))
        for run in range(runs):
            share = weight[:, run, None]
            value = figure(*sums[run * parts : (run + 1) * parts])
            # A run that has no part in a contrast must not spoil it where its own figure is undefined.
            total = total + np.where(share == 0, 0.0, share * value)
        return total

    with np.errstate(divide="ignore", invalid="ignore"):
        _fill(result, np.arange(len(weight)), tuple(columns), statistic, resamples, seed)
    return result


def log_half_point(alphas: Sequence[float], level: float = 0.5) -> Figure:
    """The log of the alpha at which a ratio of sums first falls to `level` of the reference, interpolated in log alpha.

    The figure takes the reference's two sums and then two per alpha, ascending. NaN where the level is not crossed
    between two alphas.
    """
    log_alpha = np.log(np.asarray(alphas, dtype=np.float64))

    def figure(reference: Floats, units: Floats, *parts: Floats) -> Floats:
        kept = np.stack([relative(n, d, reference, units) for n, d in zip(parts[::2], parts[1::2], strict=True)])
        lost = kept <= level
        after = lost.argmax(axis=0)
        before = np.maximum(after - 1, 0)
        high, low = (np.take_along_axis(kept, place[None], axis=0)[0] for place in (before, after))
        share = np.where(high == low, 0.0, (high - level) / np.where(high == low, 1.0, high - low))
        value = log_alpha[before] + share * (log_alpha[after] - log_alpha[before])
        return np.where(lost.any(axis=0) & (after > 0), value, np.nan)

    return figure
