"""Bootstrap over prompts of figures that are made of sums, for all columns at once.

A resample is how often each prompt was drawn, so the sums of all resamples are one product of matrices. Draws, BCa and
quantiles are those of `scipy.stats.bootstrap`, which gathers the data anew for every figure; but what equals the figure up to
rounding counts as equal here, so that an end does not hang on the order of a sum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

Floats = NDArray[np.float64]
Figure = Callable[..., Floats]
"""A figure from sums over prompts, one array per part, element by element: [column, draw] -> [column, draw]."""

CONFIDENCE = 0.95
_TAIL = (1 - CONFIDENCE) / 2
_BLOCK_ELEMENTS = 1_000_000
_ROUNDING, _CONSTANT = 4e-15, 1e-12


def ratio(numerator: Floats, denominator: Floats) -> Floats:
    """Of two sums; a mean where the second part is 1."""
    return np.asarray(numerator / denominator)


def relative(numerator: Floats, denominator: Floats, reference: Floats, units: Floats) -> Floats:
    """A ratio of sums relative to a reference one."""
    return np.asarray((numerator / denominator) / (reference / units))


def at_once(parts: Sequence[Floats], figure: Figure) -> Floats:
    """The figure [column] of all prompts; `parts` are [prompt, column], with one column where it is the same for all."""
    return figure(*(part.sum(axis=0)[:, None] for part in parts))[:, 0]


def bca_ends(parts: Sequence[Floats], figure: Figure, resamples: int, seed: int) -> tuple[Floats, Floats]:
    """Ends of the BCa interval of each column (Efron and Tibshirani 1993, section 14.3). A column that does not vary has its
    figure as both ends; NaN where a resample has no figure."""
    found = [_bca(block, figure, resamples, seed) for block in _blocks(parts, resamples)]
    low, high = (np.concatenate(ends) for ends in zip(*found, strict=True))
    return low, high


def percentile_ends(parts: Sequence[Floats], figure: Figure, resamples: int, seed: int) -> tuple[Floats, Floats]:
    """Ends of the percentile interval of each column; NaN where a resample has no figure."""
    drawn = np.sort(drawn_figures(parts, figure, resamples, seed), axis=1)
    shares = np.full(len(drawn), _TAIL)
    return _quantile(drawn, shares), _quantile(drawn, 1 - shares)


def _bca(parts: Sequence[Floats], figure: Figure, resamples: int, seed: int) -> tuple[Floats, Floats]:
    prompts = len(parts[0])
    with np.errstate(divide="ignore", invalid="ignore"):
        point = at_once(parts, figure)
        drawn = drawn_figures(parts, figure, resamples, seed)
        # Where prompts share few values, many resamples equal the figure but for rounding: they are half below it.
        rounding = _ROUNDING * np.abs(drawn).max(axis=1)
        below = sum(np.count_nonzero(drawn < end[:, None], axis=1) for end in (point - rounding, point + rounding))
        bias = ndtri(below / (2 * resamples))
        left_out = figure(*((part.sum(axis=0) - part).T for part in parts))
        influence = (prompts - 1) * (left_out.mean(axis=1, keepdims=True) - left_out)
        cubes, squares = ((influence**power).sum(axis=1) / prompts**power for power in (3, 2))
        acceleration = 1 / 6 * cubes / squares**1.5
        drawn.sort(axis=1)
        ends = []
        for tail in (float(ndtri(_TAIL)), -float(ndtri(_TAIL))):
            shifted = bias + tail
            ends.append(_quantile(drawn, ndtr(bias + shifted / (1 - acceleration * shifted))))
        constant = drawn[:, -1] - drawn[:, 0] <= _CONSTANT * np.maximum(1.0, np.abs(point))
    low, high = (np.where(constant, point, end) for end in ends)
    return low, high


def drawn_figures(parts: Sequence[Floats], figure: Figure, resamples: int, seed: int) -> Floats:
    """The figure of every resample: [column, resample]; `parts` are [prompt, column]."""
    weights = resample_weights(len(parts[0]), resamples, seed)
    with np.errstate(divide="ignore", invalid="ignore"):
        return figure(*(part.T @ weights for part in parts))


@lru_cache(maxsize=8)
def resample_weights(prompts: int, resamples: int, seed: int) -> Floats:
    """How often each resample has drawn each prompt: [prompt, resample]."""
    drawn = np.random.default_rng(seed).integers(0, prompts, (resamples, prompts))
    cell = drawn + prompts * np.arange(resamples)[:, None]
    counts = np.bincount(cell.ravel(), minlength=resamples * prompts).reshape(resamples, prompts)
    weights = np.ascontiguousarray(counts.T, dtype=np.float64)
    weights.setflags(write=False)
    return weights


def _blocks(parts: Sequence[Floats], resamples: int) -> Iterator[list[Floats]]:
    """Columns, as many at once as memory should hold."""
    columns = max(part.shape[1] for part in parts)
    size = max(1, _BLOCK_ELEMENTS // resamples)
    for start in range(0, columns, size):
        yield [part if part.shape[1] == 1 else part[:, start : start + size] for part in parts]


def _quantile(ordered: Floats, shares: Floats) -> Floats:
    """At `shares[column]` of `ordered[column, resample]`, interpolated between neighbours."""
    count = ordered.shape[1]
    known = np.isfinite(shares) & ~np.isnan(ordered[:, -1])
    place = np.where(known, shares, 0.0) * (count - 1)
    below = np.minimum(np.floor(place), count - 1)
    weight = place - below
    columns = np.arange(len(ordered))
    low = ordered[columns, below.astype(np.int64)]
    high = ordered[columns, np.minimum(below + 1, count - 1).astype(np.int64)]
    return np.where(known, np.where(weight == 0, low, (1 - weight) * low + weight * high), np.nan)
