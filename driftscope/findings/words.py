"""Figures in sentences."""

from __future__ import annotations

import math
from collections.abc import Sequence

from driftscope.stats.intervals import Interval


def plain(value: float, digits: int = 2, *, sign: bool = False) -> str:
    """A number with as many digits as are needed to tell it from 0, and no minus in front of 0."""
    rounded = round(value, digits)
    while rounded == 0 and abs(value) > 1e-9 and digits < 4:
        digits += 1
        rounded = round(value, digits)
    return f"{rounded + 0.0:{'+' if sign else ''}.{digits}f}"


def with_interval(interval: Interval, unit: str = "", digits: int = 2, *, sign: bool = False) -> str:
    """`1.79x (95% 1.70 to 1.88)`, without brackets where there is no interval."""
    text = f"{plain(interval.mean, digits, sign=sign)}{unit}"
    if interval.low is None or interval.high is None:
        return text
    return f"{text} (95% {plain(interval.low, digits, sign=sign)} to {plain(interval.high, digits, sign=sign)})"


def bare(interval: Interval, unit: str = "", digits: int = 2, *, sign: bool = False) -> str:
    """`1.79x, 95% 1.70 to 1.88`, for use within brackets."""
    return with_interval(interval, unit, digits, sign=sign).replace(" (", ", ").removesuffix(")")


def percent(value: float) -> str:
    """`93%`; one decimal where whole percents would round to 0% or 100%."""
    whole = f"{value:.0%}"
    return f"{value:.1%}" if whole in ("0%", "100%") and value not in (0.0, 1.0) else whole


def listed(parts: Sequence[str]) -> str:
    """`a, b and c`."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def counted(number: int, noun: str) -> str:
    """`1 prompt`, `1,200 anchors`."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def spread_text(low: int | None, high: int | None, onset: int) -> str:
    """` (2 to 5)` behind the step of an onset; nothing where every resample of prompts agrees, or none is known."""
    if (low is None and high is None) or low == high == onset:
        return ""
    return f" ({low} or later)" if high is None else f" ({low} to {high})"


def finite(value: float | None) -> bool:
    """Whether there is a number."""
    return value is not None and math.isfinite(value)
