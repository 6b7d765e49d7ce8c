"""Shares of an effect, and quantiles of pooled counts: figures that are neither a mean nor a ratio of counts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from driftscope.stats.intervals import CONFIDENCE, MIN_PROMPTS, RESAMPLES, SEED, Floats, Intervals, _blank, _fill


def removed_share(changed: ArrayLike, free: ArrayLike, *, resamples: int = RESAMPLES, seed: int = SEED) -> Intervals:
    """1 - mean of `changed[prompt]` / mean of `free[prompt]`, both resampled together: the share of an effect that a change
    removes. A prompt needs both. Of use only where the mean of `free` is not about 0."""
    parts = np.broadcast_arrays(*(np.asarray(part, dtype=np.float64) for part in (changed, free)))
    present = np.isfinite(parts[0]) & np.isfinite(parts[1])
    kept = tuple(part[present][:, None] for part in parts)
    result = _blank((1,))
    if present.any() and kept[1].mean() != 0:
        _fill(result, np.arange(1), kept, _removed, resamples, seed)
    return result[0]


def count_quantiles(
    counts: ArrayLike, levels: Sequence[float], *, resamples: int = RESAMPLES, seed: int = SEED
) -> Intervals:
    """The smallest values at which the pooled share of `counts[prompt, value]` reaches each level: [level].

    Percentile intervals over resampled prompts: the ends, like the quantiles, are values that occur.
    """
    data = np.asarray(counts, dtype=np.float64)
    result = _blank((len(levels),))
    if not data.size or not data.sum():
        return result
    result.mean[:] = _quantiles(data.sum(0), levels)
    if len(data) >= MIN_PROMPTS:
        rng = np.random.default_rng(seed)
        weights = rng.multinomial(len(data), np.full(len(data), 1 / len(data)), size=resamples)
        drawn = _quantiles(weights @ data, levels)
        tail = (1 - CONFIDENCE) / 2
        result.low[:], result.high[:] = np.quantile(drawn, (tail, 1 - tail), axis=0, method="inverted_cdf")
    return result


def _removed(changed: Floats, free: Floats) -> Floats:
    return np.asarray(1 - changed / free)


def _quantiles(pooled: Floats, levels: Sequence[float]) -> Floats:
    """[..., value] -> [..., level]."""
    below = pooled.cumsum(-1) / pooled.sum(-1, keepdims=True)
    # Rounding must not push a share of exactly a level below it.
    reached = below[..., None, :] >= np.asarray(levels)[:, None] - 1e-12
    return np.argmax(reached, axis=-1).astype(np.float64)
