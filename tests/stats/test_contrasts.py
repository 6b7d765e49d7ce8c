"""Contrasts between runs on the same prompts."""

from __future__ import annotations

import numpy as np
import pytest

from driftscope import stats
from driftscope.stats.contrasts import contrasts, log_half_point, ratio, relative

RNG = np.random.default_rng(0)


def test_a_single_run_has_the_interval_of_a_ratio_of_sums() -> None:
    numerator, denominator = RNG.uniform(1, 3, 20), RNG.uniform(5, 9, 20)
    found = contrasts([(numerator, denominator)], [[1.0]], ratio).at(0)
    assert found == stats.ratio_of_sums(numerator, denominator).at()


def test_a_difference_is_paired() -> None:
    common = RNG.normal(0, 10, 20)
    one, two = common, common + RNG.normal(0.5, 0.1, 20)
    ones = np.ones(20)
    found = contrasts([(one, ones), (two, ones)], [[-1, 1], [1, 0]], ratio)
    paired = stats.paired_difference(two, one)
    assert found.mean[0] == pytest.approx(float(paired.mean))
    assert found.low[0] == pytest.approx(float(paired.low), abs=1e-3)
    assert found.low[0] > 0
    assert found.low[1] < 0 < found.high[1]


def test_a_prompt_that_lacks_a_part_is_left_out_everywhere() -> None:
    one, two, ones = RNG.normal(0, 1, 16), RNG.normal(0, 1, 16), np.ones(16)
    two[3] = np.nan
    kept = np.arange(16) != 3
    found = contrasts([(one, ones), (two, ones)], [[1, 0]], ratio)
    assert found.mean[0] == pytest.approx(one[kept].mean())


def test_an_undefined_run_spoils_only_its_own_contrasts() -> None:
    ones, nothing = np.ones(16), np.zeros(16)
    found = contrasts([(ones, ones), (ones, nothing)], [[1, 0], [1, -1]], ratio)
    assert found.mean[0] == 1.0
    assert not np.isfinite(found.mean[1])


def test_nothing_measured_is_no_figure() -> None:
    gone = np.full(16, np.nan)
    assert contrasts([(gone, gone)], [[1.0]], ratio).at(0) is None


def test_relative_is_a_ratio_of_ratios() -> None:
    parts = [np.array(part, dtype=float) for part in ([1, 2], [4, 4], [2, 2], [4, 4])]
    assert contrasts([parts], [[1.0]], relative).mean[0] == pytest.approx((3 / 8) / (4 / 8))


@pytest.mark.parametrize("kept", [[0.9, 0.6, 0.3], [0.8, 0.5, 0.1], [0.9, 0.2, 0.1]])
def test_the_half_point_is_that_of_the_summary(kept: list[float]) -> None:
    alphas = [0.1, 0.5, 1.0]
    parts = [np.full(1, value) for share in kept for value in (share, 1.0)]
    found = np.exp(log_half_point(alphas)(np.ones(1), np.ones(1), *parts))
    assert found[0] == pytest.approx(stats.half_point(alphas, kept))


@pytest.mark.parametrize("kept", [[0.9, 0.8], [0.4, 0.1]])
def test_a_half_point_outside_the_range_is_no_figure(kept: list[float]) -> None:
    parts = [np.full(1, value) for share in kept for value in (share, 1.0)]
    assert np.isnan(log_half_point([0.1, 1.0])(np.ones(1), np.ones(1), *parts)[0])
