"""Resamples of sums, beside `scipy.stats.bootstrap`, which gathers the data for each of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import stats as scipy_stats

from driftscope.stats import bca, resampling
from driftscope.stats.resampling import bca_ends, percentile_ends, ratio, relative

RNG = np.random.default_rng(11)
METHODS = {"BCa": bca_ends, "percentile": percentile_ends}


def from_scipy(parts: tuple[np.ndarray, ...], figure: Callable[..., Any], method: str) -> Any:
    """Ends per column."""

    def statistic(*given: np.ndarray, axis: int) -> Any:
        return figure(*(part.sum(axis=axis) for part in given))

    found = [
        scipy_stats.bootstrap(
            tuple(part[:, column] for part in parts),
            statistic,
            paired=True,
            n_resamples=700,
            method=method,
            rng=np.random.default_rng(5),
        ).confidence_interval
        for column in range(parts[0].shape[1])
    ]
    return np.array([[each.low for each in found], [each.high for each in found]])


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("figure", "count"), [(ratio, 2), (relative, 4)])
def test_ends_are_those_of_scipy(method: str, figure: Callable[..., Any], count: int) -> None:
    parts = tuple(RNG.gamma(2.0, size=(23, 5)) for _ in range(count))
    np.testing.assert_allclose(METHODS[method](parts, figure, 700, 5), from_scipy(parts, figure, method), rtol=1e-12)


def test_blocks_of_columns_do_not_change_a_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = RNG.gamma(2.0, size=(20, 7)), np.ones((20, 1))
    whole = bca_ends(parts, ratio, 300, 0)
    monkeypatch.setattr(resampling, "_BLOCK_ELEMENTS", 600)
    np.testing.assert_allclose(bca_ends(parts, ratio, 300, 0), whole, rtol=1e-13)


def test_resamples_that_equal_the_figure_but_for_rounding_are_half_below_it() -> None:
    """Tenths cannot be added without rounding, whole numbers can: both have the same interval."""
    counts = RNG.integers(0, 4, (16, 40)).astype(np.float64)
    tenths, whole = bca(counts / 10), bca(counts)
    np.testing.assert_allclose(tenths.low, whole.low / 10, rtol=1e-12)
    np.testing.assert_allclose(tenths.high, whole.high / 10, rtol=1e-12)


def test_a_resample_without_a_figure_leaves_no_interval() -> None:
    denominator = np.where(np.arange(20) == 0, 1.0, 0.0)[:, None]
    for ends in (bca_ends, percentile_ends):
        low, high = ends((denominator, denominator), ratio, 200, 0)
        assert np.isnan([low, high]).all()
