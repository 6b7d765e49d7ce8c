"""Bootstrap intervals that resample prompts, never pooled rows.

BCa intervals after Efron and Tibshirani, An Introduction to the Bootstrap (1993), section 14.3 (`driftscope.stats.resampling`).
Every array has prompts on its first axis.

Simulated coverage of the 95% interval of a mean (6000 data sets each), by number of prompts:

    prompts      12    16    24    32    48    80
    normal       .91   .92   .93   .93   .94   .95
    log-normal   .84   .86   .88   .90   .90   .92    (sigma 1: far more skewed than a mean over anchors)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from driftscope.stats.resampling import CONFIDENCE, Figure, Floats, at_once, bca_ends, ratio, relative

__all__ = ["CONFIDENCE", "Floats"]

RESAMPLES = 2000
SEED = 0
MIN_PROMPTS = 12
"""With fewer prompts a figure has no interval."""
MIN_DENOMINATOR = 20
"""With a smaller denominator a ratio is not measurable."""


@dataclass(frozen=True)
class Interval:
    """A figure with its 95% interval; `low` and `high` are None where there are too few prompts for one."""

    mean: float
    low: float | None = None
    high: float | None = None

    def to_dict(self) -> dict[str, float | None]:
        """As in the JSON of a run."""
        return {"mean": self.mean, "low": self.low, "high": self.high}


@dataclass(frozen=True)
class Intervals:
    """Figures of one shape; NaN stands for "not measured" (mean) and "no interval" (low, high)."""

    mean: Floats
    low: Floats
    high: Floats

    @property
    def shape(self) -> tuple[int, ...]:
        return self.mean.shape

    def __getitem__(self, index: Any) -> Intervals:
        return Intervals(*(np.asarray(part[index]) for part in (self.mean, self.low, self.high)))

    def map(self, function: Callable[[Floats], Floats]) -> Intervals:
        """The figures under an increasing function, such as `np.exp`."""
        return Intervals(*(np.asarray(function(part)) for part in (self.mean, self.low, self.high)))

    def at(self, *index: int) -> Interval | None:
        """One figure, or None if it was not measured."""
        mean, low, high = (float(part[index]) for part in (self.mean, self.low, self.high))
        if not np.isfinite(mean):
            return None
        return Interval(mean, low, high) if np.isfinite(low) and np.isfinite(high) else Interval(mean)


def bca(values: ArrayLike, *, resamples: int = RESAMPLES, seed: int = SEED) -> Intervals:
    """Mean over prompts with its interval, for every column.

    A prompt that is NaN in a column is left out of that column. A constant column returns the point as both ends.

    Args:
        values: [prompt, ...], in any unit.
        resamples: of prompts.
        seed: of the resampling.

    Returns:
        Means with 95% intervals, one per column. BCa: Efron and Tibshirani, An Introduction to the Bootstrap (1993), chapter 14.
    """
    data = np.asarray(values, dtype=np.float64)
    result = _blank(data.shape[1:])
    flat = _flat(data)
    for prompts, columns in _by_presence(np.isfinite(flat)):
        part = flat[np.ix_(prompts, columns)]
        _fill(result, columns, (part, np.ones((len(part), 1))), ratio, resamples, seed)
    return result


def ratio_of_sums(
    numerator: ArrayLike,
    denominator: ArrayLike,
    *,
    minimum: float = MIN_DENOMINATOR,
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> Intervals:
    """Sum over prompts of the numerators over that of the denominators, both resampled together.

    Prompts without a denominator are left out.

    Args:
        numerator: [prompt, ...].
        denominator: of the same shape.
        minimum: a column whose denominators sum to less is NaN.
        resamples: of prompts.
        seed: of the resampling.

    Returns:
        Means with 95% intervals, one per column. BCa: Efron and Tibshirani, An Introduction to the Bootstrap (1993), chapter 14.
    """
    num, den = (np.asarray(part, dtype=np.float64) for part in (numerator, denominator))
    num, den = np.broadcast_arrays(num, den)
    result = _blank(num.shape[1:])
    num, den = _flat(num), _flat(den)
    for prompts, columns in _by_presence(np.isfinite(num) & (den > 0)):
        parts = num[np.ix_(prompts, columns)], den[np.ix_(prompts, columns)]
        enough = parts[1].sum(axis=0) >= minimum
        if enough.any():
            kept = tuple(part[:, enough] for part in parts)
            _fill(result, columns[enough], kept, ratio, resamples, seed)
    return result


def relative_ratio(
    numerator: ArrayLike,
    denominator: ArrayLike,
    reference_numerator: ArrayLike,
    reference_denominator: ArrayLike,
    *,
    minimum: float = MIN_DENOMINATOR,
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> Intervals:
    """A ratio of sums relative to a reference one on the same prompts, as in "length kept, in % of clean" / 100.

    Args:
        numerator, denominator, minimum: as `ratio_of_sums` takes them.
        reference_numerator, reference_denominator: of the reference; a ratio of 0 gives NaN.
        resamples: of prompts.
        seed: of the resampling.

    Returns:
        Means with 95% intervals, one per column. BCa: Efron and Tibshirani, An Introduction to the Bootstrap (1993), chapter 14.
    """
    given = (numerator, denominator, reference_numerator, reference_denominator)
    parts = np.broadcast_arrays(*(np.asarray(part, dtype=np.float64) for part in given))
    result = _blank(parts[0].shape[1:])
    parts = tuple(_flat(part) for part in parts)
    present = np.isfinite(parts[0]) & (parts[1] > 0) & np.isfinite(parts[2]) & (parts[3] > 0)
    for prompts, columns in _by_presence(present):
        kept = tuple(part[np.ix_(prompts, columns)] for part in parts)
        enough = (kept[1].sum(axis=0) >= minimum) & (kept[3].sum(axis=0) >= minimum) & (kept[2].sum(axis=0) > 0)
        if enough.any():
            kept = tuple(part[:, enough] for part in kept)
            _fill(result, columns[enough], kept, relative, resamples, seed)
    return result


def paired_difference(
    values: ArrayLike, reference: ArrayLike, *, resamples: int = RESAMPLES, seed: int = SEED
) -> Intervals:
    """Mean over prompts of the difference; a prompt needs both.

    Args:
        values: [prompt, ...].
        reference: what is taken off, of the same shape.
        resamples: of prompts.
        seed: of the resampling.

    Returns:
        Means with 95% intervals, one per column. BCa: Efron and Tibshirani, An Introduction to the Bootstrap (1993), chapter 14.
    """
    difference = np.asarray(values, dtype=np.float64) - np.asarray(reference, dtype=np.float64)
    return bca(difference, resamples=resamples, seed=seed)


def _blank(shape: tuple[int, ...]) -> Intervals:
    return Intervals(*(np.full(shape, np.nan) for _ in range(3)))


def _flat(data: Floats) -> Floats:
    """[prompt, ...] as [prompt, column]."""
    return data.reshape(len(data), math.prod(data.shape[1:]))


def _by_presence(present: NDArray[np.bool_]) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """Columns that lack the same prompts, together: (indices of their prompts, indices of the columns)."""
    if not present.size:
        return
    if present.all():
        yield np.arange(len(present)), np.arange(present.shape[1])
        return
    patterns, membership = np.unique(present, axis=1, return_inverse=True)
    for number in range(patterns.shape[1]):
        prompts = np.flatnonzero(patterns[:, number])
        if prompts.size:
            yield prompts, np.flatnonzero(membership.ravel() == number)


def _fill(
    result: Intervals,
    columns: NDArray[np.intp],
    parts: tuple[Floats, ...],
    figure: Figure,
    resamples: int,
    seed: int,
) -> None:
    """Write the figures of `columns`; `parts` are [prompt, column] arrays without gaps."""
    mean, low, high = (part.reshape(-1) for part in (result.mean, result.low, result.high))
    mean[columns] = at_once(parts, figure)
    if len(parts[0]) >= MIN_PROMPTS:
        low[columns], high[columns] = bca_ends(parts, figure, resamples, seed)
