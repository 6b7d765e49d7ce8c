"""Shares of an effect and quantiles of pooled counts."""

from __future__ import annotations

import numpy as np
import pytest

from driftscope.stats.shares import count_quantiles, removed_share


def test_share_of_means_and_its_interval() -> None:
    rng = np.random.default_rng(0)
    free = rng.normal(1.0, 0.3, 40)
    found = removed_share(0.25 * free + rng.normal(0, 0.02, 40), free).at()
    assert found is not None
    assert found.mean == pytest.approx(0.75, abs=0.02)
    assert found.low is not None
    assert found.high is not None
    assert 0.7 < found.low < found.mean < found.high < 0.8


def test_prompts_of_either_sign_count_and_a_missing_one_is_left_out() -> None:
    found = removed_share([1.0, -1.0, 2.0, np.nan], [4.0, -1.0, 1.0, 9.0]).at()
    assert found is not None
    assert found.mean == pytest.approx(1 - 2 / 4)
    assert found.low is None


def test_a_change_that_changes_nothing_has_share_0() -> None:
    free = np.linspace(0.1, 1, 20)
    found = removed_share(free, free).at()
    assert found is not None
    assert (found.mean, found.low, found.high) == (0, 0, 0)


@pytest.mark.parametrize("free", [[0.0, 0.0], [np.nan, np.nan], [1.0, -1.0]])
def test_no_effect_has_no_share(free: list[float]) -> None:
    assert removed_share([1.0, 1.0], free).at() is None


def test_quantiles_are_those_of_the_pooled_values() -> None:
    rng = np.random.default_rng(1)
    lengths = [rng.integers(0, 9, rng.integers(5, 40)) for _ in range(15)]
    counts = np.stack([np.bincount(part, minlength=9) for part in lengths])
    levels = (0.0, 0.1, 0.25, 0.5, 0.9, 1.0)
    found = count_quantiles(counts, levels)
    expected = np.quantile(np.concatenate(lengths), levels[1:], method="inverted_cdf")
    np.testing.assert_array_equal(found.mean[1:], expected)
    assert found.mean[0] == 0
    assert (found.low <= found.mean).all()
    assert (found.mean <= found.high).all()
    assert (found.low == np.round(found.low)).all()


def test_a_share_of_exactly_the_level_reaches_it() -> None:
    assert count_quantiles([[1, 2, 3, 4]], [0.1, 0.3, 0.6]).mean.tolist() == [0, 1, 2]


def test_few_prompts_have_no_interval_and_no_counts_no_quantile() -> None:
    assert np.isnan(count_quantiles([[1, 1]] * 11, [0.5]).low).all()
    assert np.isfinite(count_quantiles([[1, 1]] * 12, [0.5]).low).all()
    assert np.isnan(count_quantiles(np.zeros((3, 4)), [0.5]).mean).all()
