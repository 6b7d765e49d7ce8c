"""Jump, slope, onset and displacement on planted and on absent drift."""

from __future__ import annotations

import numpy as np
import pytest

from driftscope.stats import bca, displacement, growth, jump, onset, onset_of, shared_displacement, slope

STEPS = 8


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(11)


def test_jump_and_slope_tell_a_step_from_a_rise() -> None:
    jumped = np.tile([0.0] + [0.3] * 7, (3, 1))
    rising = np.tile(0.1 * np.arange(STEPS), (3, 1))
    assert jump(jumped) == pytest.approx(0.3)
    assert slope(jumped) == pytest.approx(0.0)
    assert jump(rising) == pytest.approx(0.1)
    assert slope(rising) == pytest.approx(0.1)


def test_slope_is_least_squares_over_steps_from_2(rng: np.random.Generator) -> None:
    values = rng.normal(size=(5, STEPS))
    expected = np.polyfit(np.arange(2, STEPS + 1), values[:, 1:].T, 1)[0]
    assert slope(values) == pytest.approx(expected)


def test_too_few_steps_have_no_jump_or_slope() -> None:
    assert np.isnan(jump(np.ones((4, 1)))).all()
    assert np.isnan(slope(np.ones((4, 2)))).all()


def test_growth_is_a_geometric_mean() -> None:
    logs = np.log(np.array([[1.0, 2.0], [1.0, 8.0]]))
    assert growth(logs).mean == pytest.approx([1.0, 4.0])


@pytest.mark.parametrize("direction", ["up", "down"])
@pytest.mark.parametrize("start", [2, 4, STEPS])
def test_planted_onset_is_found(rng: np.random.Generator, start: int, direction: str) -> None:
    repeats = 100
    values = rng.normal(0, 0.05, (48, STEPS, repeats))
    sign = 1 if direction == "up" else -1
    values[:, start - 1 :] += sign * 0.2
    intervals = bca(values - values[:, :1], resamples=300)
    found = [onset_of(intervals[:, number], 0.05, direction) for number in range(repeats)]  # type: ignore[arg-type]
    assert np.mean([step == start for step in found]) >= 0.95


@pytest.mark.parametrize("direction", ["up", "down"])
def test_false_onsets_stay_under_5_percent_without_a_practical_size(rng: np.random.Generator, direction: str) -> None:
    repeats = 400
    values = rng.normal(0, 1, (48, STEPS, repeats))
    intervals = bca(values - values[:, :1], resamples=400)
    found = [onset_of(intervals[:, number], 0.0, direction) for number in range(repeats)]  # type: ignore[arg-type]
    assert np.mean([step != "none" for step in found]) <= 0.05


def planted(*means: float) -> np.ndarray:
    noise = np.random.default_rng(0).normal(0, 0.001, (20, len(means)))
    noise[:, 0] = 0
    return noise + np.array(means)


def test_onset_must_persist_to_the_end() -> None:
    assert onset(planted(0, 0.2, 0.2, 0.0, 0.2, 0.2), 0.05) == 5
    assert onset(planted(0, 0.2, 0.2, 0.2, 0.0), 0.05) == "none"


def test_onset_must_be_beyond_the_practical_size() -> None:
    assert onset(planted(0, 0.04, 0.06, 0.08), 0.05) == 3
    assert onset(planted(0, 0.04, 0.04, 0.04), 0.05) == "none"


def test_onset_has_a_direction() -> None:
    assert onset(planted(0, 0.2, 0.2), 0.05, "down") == "none"
    assert onset(-planted(0, 0.2, 0.2), 0.05, "down") == 2


def test_onset_is_not_measurable_when_there_is_too_little_to_lose() -> None:
    falling = -planted(0, 0.02, 0.03)
    assert onset(falling, 0.05, "down", available=0.04) == "not measurable"
    assert onset(falling, 0.05, "down", available=0.4) == "none"


def test_onset_is_not_measurable_with_too_few_prompts_or_steps() -> None:
    assert onset(planted(0, 0.2)[:11], 0.05) == "not measurable"
    assert onset(planted(0), 0.05) == "not measurable"


def test_onset_of_a_constant_drift() -> None:
    assert onset(np.tile([0, 0.0, 0.3, 0.3], (12, 1)), 0.05) == 3


def test_displacement_does_not_cancel_over_heads() -> None:
    excess = np.array([[0.3, -0.3, 0.0], [-0.1, 0.1, 0.0]])
    assert np.abs(excess.mean(0)).sum() / 2 == pytest.approx(0.1)
    assert displacement(excess) == pytest.approx(0.2)


def test_displacement_is_a_total_variation(rng: np.random.Generator) -> None:
    first, second = (rng.dirichlet(np.ones(5), (6, 4)) for _ in range(2))
    found = displacement(first - second)
    assert found.shape == (6,)
    assert (found > 0).all()
    assert (found <= 1).all()
    assert displacement(np.eye(5)[None, 0] - np.eye(5)[None, 1]) == 1.0


def test_displacement_leaves_out_absent_buckets_and_heads() -> None:
    assert displacement([[0.3, -0.3, np.nan], [np.nan] * 3]) == pytest.approx(0.3)
    assert np.isnan(displacement([[np.nan, np.nan]]))


def test_a_shift_that_all_prompts_share_is_the_displacement_of_their_mean(rng: np.random.Generator) -> None:
    shift = np.array([-0.3, 0.1, 0.2])
    excess = shift + rng.normal(0, 0.02, (20, 4, 3))
    assert shared_displacement(excess).mean() == pytest.approx(displacement(excess.mean(0)), abs=1e-6)
    assert shared_displacement(excess).mean() == pytest.approx(0.3, abs=0.01)


def test_scatter_alone_is_no_displacement(rng: np.random.Generator) -> None:
    """What a prompt's few anchors scatter must not be found, however large it is."""
    scatter = rng.normal(0, 0.15, (400, 24, 9, 5))
    scatter -= scatter.mean(-1, keepdims=True)
    by_prompts = scatter.reshape(25, 16, 24, 9, 5)
    assert displacement(scatter).mean() > 0.2
    assert abs(np.mean([shared_displacement(prompts).mean() for prompts in by_prompts])) < 0.002
    found = [onset(np.column_stack([np.zeros(16), shared_displacement(p)[:, :7]]), 0.05) for p in by_prompts]
    assert set(found) == {"none"}


def test_a_prompt_or_a_head_that_was_not_measured_is_left_out() -> None:
    excess = np.array([[[0.2, -0.2]], [[0.4, -0.4]], [[np.nan, np.nan]]])
    assert shared_displacement(excess)[:2] == pytest.approx([0.2, 0.4])
    assert np.isnan(shared_displacement(excess)[2])
    assert np.isnan(shared_displacement(excess[:1])).all()
