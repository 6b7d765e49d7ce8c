"""Jump, slope, onset and displacement on planted and on absent drift."""

from __future__ import annotations

import numpy as np
import pytest

from driftscope.stats import (
    Spread,
    bca,
    displacement,
    growth,
    jump,
    late_slope,
    most_displacement,
    onset,
    onset_of,
    onset_spread,
    shared_displacement,
    slope,
)

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


def noisy(means: list[float], deviation: float, prompts: int = 48, seed: int = 3) -> np.ndarray:
    noise = np.random.default_rng(seed).normal(0, deviation, (prompts, len(means)))
    noise[:, 0] = 0
    return noise + np.array(means)


def test_a_mean_beyond_the_size_does_not_suffice() -> None:
    """Half of all samples have a mean beyond the size where the truth is at the size."""
    values = noisy([0, 0.055, 0.12, 0.2], 0.05)
    intervals = bca(values)
    assert intervals.mean[1] > 0.05 > intervals.low[1] > 0
    assert onset(values, 0.05) == 3
    assert onset(-values, 0.05, "down") == 3


def test_the_spread_holds_the_steps_that_cannot_be_told_apart() -> None:
    values = noisy([0, 0.055, 0.12, 0.2], 0.05)
    assert onset_spread(values, 0.05, found=3) == Spread(2, 3)
    assert onset_spread(-values, 0.05, "down", found=3) == Spread(2, 3)
    assert onset_spread(planted(0, 0.2, 0.3), 0.05, found=2) == Spread(2, 2)


def test_an_onset_that_is_not_shown_may_be_there_all_the_same() -> None:
    flat, maybe = noisy([0, 0.0, 0.0, 0.0], 0.05), noisy([0, 0.0, 0.0, 0.055], 0.05)
    assert onset(flat, 0.05) == onset(maybe, 0.05) == "none"
    assert onset_spread(flat, 0.05) == Spread(None, None)
    assert onset_spread(maybe, 0.05) == Spread(4, None)


def test_what_is_not_measurable_has_no_spread() -> None:
    assert onset_spread(planted(0, 0.2), 0.05, found="not measurable") is None
    assert onset_spread(planted(0), 0.05) is None


def test_a_gap_takes_a_prompt_out_of_its_step_only() -> None:
    values = planted(0, 0.0, 0.2, 0.2)
    values[3, 2] = np.nan
    assert onset_spread(values, 0.05, found=3) == Spread(3, 3)


@pytest.mark.parametrize("start", [2, 5, STEPS])
def test_the_spread_covers_a_planted_onset(start: int) -> None:
    """A linear rise crosses the size at a known step; 24 prompts do not tell it exactly."""
    means = np.maximum(0.0, 0.05 + 0.03 * (np.arange(1, STEPS + 1) - start + 0.5))
    means[0] = 0.0
    covered, wide = 0, 0
    for seed in range(100):
        values = noisy(list(means), 0.08, 24, seed)
        spread = onset_spread(values, 0.05, found=onset(values, 0.05, resamples=300), resamples=300)
        assert spread is not None
        assert spread.low is None or spread.high is None or spread.low <= spread.high
        covered += spread.low is not None and spread.low <= start <= (spread.high or STEPS + 1)
        wide += spread.low != spread.high
    assert covered >= 93
    assert wide > 20


def test_the_late_slope_is_that_of_the_later_half(rng: np.random.Generator) -> None:
    values = rng.normal(size=(5, STEPS))
    assert late_slope(values) == pytest.approx(np.polyfit(np.arange(5, 9), values[:, 4:].T, 1)[0])
    odd = values[:, :7]
    assert late_slope(odd) == pytest.approx(np.polyfit(np.arange(4, 8), odd[:, 3:].T, 1)[0])
    assert np.isnan(late_slope(values[:, :3])).all()
    early = np.tile([0.0, 0.1, 0.2, 0.3, 0.3, 0.3, 0.3, 0.3], (3, 1))
    assert slope(early) == pytest.approx(0.0285714, rel=1e-3)
    assert late_slope(early) == pytest.approx(0.0)


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


def test_the_truth_lies_between_the_two_displacements(rng: np.random.Generator) -> None:
    """A small shift in heads of either sign, few prompts: signs that scatter turns take off, or add."""
    sign = rng.choice((-1.0, 1.0), (9, 1))
    shift = 0.03 * sign * np.array([-1.0, 1.0, 0.0])
    draws = [shift + rng.normal(0, 0.1, (16, 9, 3)) for _ in range(50)]
    assert np.mean([shared_displacement(part).mean() for part in draws]) < 0.028
    assert np.mean([most_displacement(part).mean() for part in draws]) > 0.032
    part = draws[0]
    assert most_displacement(part).mean() == pytest.approx(displacement(part.mean(0)))


def test_the_early_end_is_taken_from_what_errs_to_the_other_side() -> None:
    least, most = noisy([0, 0.02, 0.03, 0.2], 0.02), noisy([0, 0.04, 0.09, 0.2], 0.02)
    assert onset_spread(least, 0.05, found=onset(least, 0.05)) == Spread(4, 4)
    assert onset_spread(least, 0.05, found=onset(least, 0.05), most=most) == Spread(3, 4)


def test_a_prompt_or_a_head_that_was_not_measured_is_left_out() -> None:
    excess = np.array([[[0.2, -0.2]], [[0.4, -0.4]], [[np.nan, np.nan]]])
    assert shared_displacement(excess)[:2] == pytest.approx([0.2, 0.4])
    assert np.isnan(shared_displacement(excess)[2])
    assert np.isnan(shared_displacement(excess[:1])).all()
