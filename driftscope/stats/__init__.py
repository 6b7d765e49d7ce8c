"""Statistics of drift: pure functions over arrays with prompts on the first axis. Nothing here imports torch."""

from driftscope.stats.acceptance import ChainSplit, ServedWalk, reached, served_walk, split_chains
from driftscope.stats.drift import (
    PRACTICAL_LOG_RMS,
    PRACTICAL_MASS,
    Onset,
    displacement,
    growth,
    jump,
    onset,
    onset_of,
    shared_displacement,
    slope,
)
from driftscope.stats.heads import HeadDrift, rank_heads
from driftscope.stats.intervals import (
    MIN_DENOMINATOR,
    MIN_PROMPTS,
    RESAMPLES,
    Interval,
    Intervals,
    bca,
    paired_difference,
    ratio_of_sums,
    relative_ratio,
)
from driftscope.stats.trend import Trend, half_point, holm, page_trend

__all__ = [
    "MIN_DENOMINATOR",
    "MIN_PROMPTS",
    "PRACTICAL_LOG_RMS",
    "PRACTICAL_MASS",
    "RESAMPLES",
    "ChainSplit",
    "HeadDrift",
    "Interval",
    "Intervals",
    "Onset",
    "ServedWalk",
    "Trend",
    "bca",
    "displacement",
    "growth",
    "half_point",
    "holm",
    "jump",
    "onset",
    "onset_of",
    "page_trend",
    "paired_difference",
    "rank_heads",
    "ratio_of_sums",
    "reached",
    "relative_ratio",
    "served_walk",
    "shared_displacement",
    "slope",
    "split_chains",
]
