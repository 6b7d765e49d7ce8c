"""How many prompts would tell a difference that the ones at hand do not."""

from __future__ import annotations

import math

from scipy.special import ndtri

from driftscope.stats.intervals import Interval
from driftscope.stats.resampling import CONFIDENCE

POWER = 0.8


def prompts_needed(figure: Interval, prompts: int, difference: float, *, power: float = POWER) -> int | None:
    """Prompts with which a 95% interval excludes 0 with probability `power`, where the truth is `difference`.

    From the spread over the `prompts` that gave `figure`: half the width of its interval is taken for 1.96 standard errors, and
    these fall with the root of the number (the usual normal approximation, Cohen 1988, section 2.4). None without an interval.
    """
    if figure.low is None or figure.high is None:
        return None
    if difference <= 0:
        raise ValueError(f"difference must be positive, got {difference}")
    quantile = float(ndtri((1 + CONFIDENCE) / 2))
    error = (figure.high - figure.low) / (2 * quantile)
    return max(2, math.ceil(prompts * ((quantile + float(ndtri(power))) * error / difference) ** 2))


def prompts_for_width(width: float, prompts: int, wanted: float) -> int:
    """Prompts with which an interval that is `width` wide over `prompts` would be `wanted` wide: widths fall with the root of
    their number."""
    if not wanted > 0:
        raise ValueError(f"wanted must be positive, got {wanted}")
    return math.ceil(prompts * (width / wanted) ** 2)
