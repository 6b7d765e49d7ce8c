"""Page's test, Holm's adjustment and the half point."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftscope.stats import half_point, holm, page_trend


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(5)


def test_page_finds_a_rise_and_a_fall_only_in_their_direction(rng: np.random.Generator) -> None:
    rising = np.arange(8) * 0.2 + rng.normal(size=(48, 8))
    for values, right, wrong in ((rising, "up", "down"), (-rising, "down", "up")):
        assert page_trend(values, right).p_value < 1e-3  # type: ignore
        assert page_trend(values, wrong).p_value > 0.9  # type: ignore


def test_page_is_quiet_without_a_trend(rng: np.random.Generator) -> None:
    p_values = [page_trend(rng.normal(size=(48, 8))).p_value for _ in range(200)]  # type: ignore[union-attr]
    assert np.mean(np.array(p_values) < 0.05) <= 0.08


def test_page_drops_prompts_with_gaps_and_needs_enough(rng: np.random.Generator) -> None:
    values = rng.normal(size=(20, 5))
    values[0, 2] = np.nan
    assert page_trend(values).prompts == 19  # type: ignore[union-attr]
    assert page_trend(values[:1]) is None
    assert page_trend(values[:, :2]) is None


def test_holm_on_a_worked_example() -> None:
    assert holm([0.01, 0.04, np.nan, 0.03, 0.005]) == pytest.approx([0.03, 0.06, np.nan, 0.06, 0.02], nan_ok=True)


@given(st.lists(st.floats(0, 1), max_size=20))
def test_holm_never_lowers_and_keeps_the_order(p_values: list[float]) -> None:
    adjusted = holm(p_values)
    assert (adjusted >= np.array(p_values)).all()
    assert (adjusted <= 1).all()
    order = np.argsort(p_values, kind="stable")
    assert (np.diff(adjusted[order]) >= 0).all()


def test_half_point_is_interpolated_in_log_alpha() -> None:
    assert half_point([0.1, 1.0], [0.75, 0.25]) == pytest.approx(10**-0.5)
    assert half_point([1.0, 0.1], [0.25, 0.75]) == pytest.approx(10**-0.5)
    assert half_point([0.1, 0.5, 1.0], [0.9, 0.5, 0.1]) == 0.5


def test_half_point_takes_the_first_crossing() -> None:
    assert half_point([0.1, 0.2, 0.4, 0.8], [0.6, 0.4, 0.7, 0.1]) == pytest.approx(np.sqrt(0.02))


def test_half_point_outside_the_range_is_said() -> None:
    assert half_point([0.1, 1.0], [0.9, 0.6]) == "beyond the range"
    assert half_point([0.1, 1.0], [0.3, 0.1]) == "below the range"
    assert half_point([0.1, 1.0], [np.nan, np.nan]) is None
    assert half_point([0.1, 0.3, 1.0], [0.75, np.nan, 0.25]) == pytest.approx(10**-0.5)


def test_half_point_refuses_alpha_0() -> None:
    with pytest.raises(ValueError, match="positive"):
        half_point([0.0, 1.0], [1.0, 0.2])
