"""How many prompts would tell."""

from __future__ import annotations

import numpy as np
import pytest

from driftscope import stats
from driftscope.stats.intervals import Interval
from driftscope.stats.power import prompts_needed


def test_the_number_is_that_of_the_normal_approximation() -> None:
    """A standard error of .5 / sqrt(48): n = ((1.96 + .84) * .5 / .1)^2."""
    error = 0.5 / np.sqrt(48)
    figure = Interval(0.02, 0.02 - 1.959964 * error, 0.02 + 1.959964 * error)
    assert prompts_needed(figure, 48, 0.1) == 197
    assert prompts_needed(Interval(0.02), 48, 0.1) is None
    with pytest.raises(ValueError, match="positive"):
        prompts_needed(figure, 48, 0.0)


def test_with_that_many_prompts_four_of_five_runs_tell_the_difference() -> None:
    rng = np.random.default_rng(0)
    error = 1.959964 * 0.5 / np.sqrt(48)
    count = prompts_needed(Interval(0.02, 0.02 - error, 0.02 + error), 48, 0.1)
    assert count is not None
    again = stats.bca(rng.normal(0.1, 0.5, (count, 400)), resamples=400)
    assert 0.75 < np.mean(again.low > 0) < 0.85
