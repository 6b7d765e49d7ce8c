"""Intervals: what they are on known data, and how often they hold the truth."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats as scipy_stats

from driftscope.stats import (
    MIN_DENOMINATOR,
    MIN_PROMPTS,
    Interval,
    bca,
    paired_difference,
    ratio_of_sums,
    relative_ratio,
)


def assert_same(found: Interval | None, expected: Interval | None) -> None:
    assert found is not None
    assert expected is not None
    assert found.to_dict() == pytest.approx(expected.to_dict(), rel=1e-12)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(3)


def test_equals_scipy_on_one_column(rng: np.random.Generator) -> None:
    values = rng.exponential(size=30)
    expected = scipy_stats.bootstrap((values,), np.mean, n_resamples=500, method="BCa", rng=np.random.default_rng(7))
    found = bca(values, resamples=500, seed=7).at()
    assert found is not None
    assert found.low == pytest.approx(expected.confidence_interval.low)
    assert found.high == pytest.approx(expected.confidence_interval.high)


def test_same_figures_for_a_column_alone_and_among_others(rng: np.random.Generator) -> None:
    values = rng.normal(size=(20, 3, 4))
    together = bca(values, resamples=200)
    assert together.shape == (3, 4)
    assert_same(together.at(1, 2), bca(values[:, 1, 2], resamples=200).at())


def test_too_few_prompts_give_a_point_without_interval(rng: np.random.Generator) -> None:
    values = rng.normal(size=MIN_PROMPTS)
    assert bca(values, resamples=100).at().low is not None  # type: ignore[union-attr]
    found = bca(values[1:], resamples=100).at()
    assert found is not None
    assert found.mean == pytest.approx(values[1:].mean())
    assert found.low is found.high is None


def test_constant_column_returns_the_point() -> None:
    found = bca(np.stack([np.full(20, 0.1), np.arange(20.0)], axis=1), resamples=100)
    assert found.at(0) == Interval(found.mean[0], found.mean[0], found.mean[0])
    assert found.low[1] < 9.5 < found.high[1]


def test_nan_prompts_are_dropped_per_column(rng: np.random.Generator) -> None:
    values = rng.normal(size=(20, 3))
    values[:4, 1] = np.nan
    values[:, 2] = np.nan
    found = bca(values, resamples=200)
    assert_same(found.at(0), bca(values[:, 0], resamples=200).at())
    assert_same(found.at(1), bca(values[4:, 1], resamples=200).at())
    assert found.at(2) is None


def test_no_prompts_and_no_columns_are_not_measured() -> None:
    assert bca(np.empty((0, 2))).at(0) is None
    assert bca(np.empty((20, 0))).shape == (0,)


def test_map_moves_point_and_ends_together(rng: np.random.Generator) -> None:
    found = bca(rng.normal(size=20), resamples=100)
    mapped = found.map(np.exp)
    assert mapped.low == np.exp(found.low)
    assert mapped.mean == np.exp(found.mean)


def test_ratio_of_sums_weights_by_denominator() -> None:
    numerator, denominator = np.array([1.0, 30.0]), np.array([10.0, 40.0])
    found = ratio_of_sums(numerator, denominator).at()
    assert found == Interval(31 / 50)


def test_ratio_of_sums_resamples_pairs(rng: np.random.Generator) -> None:
    denominator = rng.integers(1, 100, 40)
    found = ratio_of_sums(0.3 * denominator, denominator, resamples=200).at()
    assert found is not None
    # Sizes vary, the ratio does not: resampling the two apart would give a wide interval.
    assert_same(found, Interval(0.3, 0.3, 0.3))


def test_ratio_below_the_minimum_denominator_is_not_measurable() -> None:
    denominator = np.zeros((20, 2))
    denominator[0] = [MIN_DENOMINATOR, MIN_DENOMINATOR - 1]
    found = ratio_of_sums(denominator / 2, denominator)
    assert found.at(0) == Interval(0.5)
    assert found.at(1) is None


def test_prompts_without_denominator_do_not_count_towards_an_interval(rng: np.random.Generator) -> None:
    denominator = np.repeat([10.0, 0.0], [11, 20])
    found = ratio_of_sums(rng.integers(0, 10, 31) * (denominator > 0), denominator, resamples=100).at()
    assert found is not None
    assert found.low is None


def test_relative_ratio_is_paired(rng: np.random.Generator) -> None:
    rounds = rng.integers(20, 40, 30).astype(float)
    clean = rounds * rng.uniform(1, 3, 30)
    found = relative_ratio(clean / 2, rounds, clean, rounds, resamples=200).at()
    assert_same(found, Interval(0.5, 0.5, 0.5))
    assert relative_ratio(clean, rounds, 0 * clean, rounds).at() is None


def test_paired_difference_removes_what_prompts_share(rng: np.random.Generator) -> None:
    level = rng.normal(0, 100, 30)
    found = paired_difference(level + 1 + rng.normal(0, 0.1, 30), level, resamples=200).at()
    assert found is not None
    assert found.low is not None
    assert 0.9 < found.low < 1 < found.high < 1.1  # type: ignore[operator]


def test_coverage_is_near_95_percent_for_near_normal_data_with_48_prompts(rng: np.random.Generator) -> None:
    data = scipy_stats.gamma(50).rvs((48, 1500), random_state=rng) - 50
    found = bca(data, resamples=600)
    coverage = np.mean((found.low <= 0) & (found.high >= 0))
    assert 0.92 <= coverage <= 0.97
