"""Monotone trends over steps, and the level at which half of something is lost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from driftscope.stats.intervals import Floats


@dataclass(frozen=True)
class Trend:
    """Page's L with its one-sided p-value over `prompts` prompts."""

    statistic: float
    p_value: float
    prompts: int


def page_trend(values: ArrayLike, direction: Literal["up", "down"] = "up") -> Trend | None:
    """Page's test (1963) that `values[prompt, step]` rise (or fall) with the step; one-sided.

    Prompts with a NaN are left out. None with fewer than two prompts or three steps.
    """
    data = np.asarray(values, dtype=np.float64)
    data = data[np.isfinite(data).all(axis=1)]
    prompts, steps = data.shape
    if prompts < 2 or steps < 3:
        return None
    ranks = np.arange(1, steps + 1)
    result = stats.page_trend_test(data, predicted_ranks=ranks if direction == "up" else ranks[::-1])
    return Trend(float(result.statistic), float(result.pvalue), prompts)


def holm(p_values: ArrayLike) -> Floats:
    """p-values adjusted by Holm's step-down method (1979); NaN stays NaN and is not counted as a test."""
    given = np.asarray(p_values, dtype=np.float64)
    flat = given.reshape(-1)
    adjusted = np.full(flat.shape, np.nan)
    tests: NDArray[np.intp] = np.flatnonzero(np.isfinite(flat))
    order = tests[np.argsort(flat[tests], kind="stable")]
    scaled = flat[order] * np.arange(order.size, 0, -1)
    adjusted[order] = np.minimum(np.maximum.accumulate(scaled), 1.0) if order.size else scaled
    return adjusted.reshape(given.shape)


def half_point(
    alphas: ArrayLike, kept: ArrayLike, level: float = 0.5
) -> float | Literal["below the range", "beyond the range"] | None:
    """The alpha at which what is kept first falls to a level, interpolated in log alpha.

    Args:
        alphas: scales of noise, positive.
        kept: [alpha], 1 where nothing is lost.
        level: the share.

    Returns:
        The alpha; "below the range" if it is lost at the smallest already, "beyond the range" if at none; None without a measured
        value.

    Raises:
        ValueError: an alpha that is not positive.
    """
    alpha, share = (np.asarray(part, dtype=np.float64) for part in (alphas, kept))
    if np.any(alpha <= 0):
        raise ValueError(f"alphas must be positive, got {alpha.min()}")
    present = np.isfinite(share)
    order = np.argsort(alpha[present], kind="stable")
    alpha, share = alpha[present][order], share[present][order]
    if not alpha.size:
        return None
    lost = np.flatnonzero(share <= level)
    if not lost.size:
        return "beyond the range"
    after = lost[0]
    if share[after] == level:
        return float(alpha[after])
    if after == 0:
        return "below the range"
    weight = (share[after - 1] - level) / (share[after - 1] - share[after])
    low, high = np.log(alpha[after - 1]), np.log(alpha[after])
    return float(np.exp(low + weight * (high - low)))
