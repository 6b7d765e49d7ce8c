"""From runs to the small tidy frames that charts and tables draw. Every figure and interval is that of `driftscope.runs.summary`
or `driftscope.stats`; nothing here defines a statistic.

One row per figure: `run` (its label), the axes (`step`, `bucket`, ...), `mean`, `low`, `high` (95% interval over
prompts), `count` with `counted` (the denominator and what it counts) and `prompts`. NaN is "not measured".
"""

from driftscope.show.frames.acceptance import confidence, sampling, served_lengths, survival
from driftscope.show.frames.attention import head_masses, head_ranking, per_key
from driftscope.show.frames.base import Runs, labelled, onsets, step_figures, step_means
from driftscope.show.frames.jumps import site_jumps
from driftscope.show.frames.norms import (
    SITE_MODES,
    aux_norms,
    carry_norms,
    cosines,
    layer_norms,
    site_norms,
    update_ratios,
)

__all__ = [
    "SITE_MODES",
    "Runs",
    "aux_norms",
    "carry_norms",
    "confidence",
    "cosines",
    "head_masses",
    "head_ranking",
    "labelled",
    "layer_norms",
    "onsets",
    "per_key",
    "sampling",
    "served_lengths",
    "site_jumps",
    "site_norms",
    "step_figures",
    "step_means",
    "survival",
    "update_ratios",
]
