"""The served walk, and accepted against rejected chains."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftscope.stats import reached, served_walk, split_chains


def test_walk_skips_what_was_accepted_and_the_bonus_token() -> None:
    walk = served_walk([2, 9, 9, 0, 1, 9, 3], depth=4)
    assert walk.visited.tolist() == [0, 3, 4, 6]
    assert walk.accepted.tolist() == [2, 0, 1, 3]
    assert (walk.rounds, walk.total, walk.total_sq) == (4, 6, 14)


def test_walk_differs_from_the_anchor_mean() -> None:
    # A stretch where all is accepted is crossed in few rounds, so it weighs less than under a mean over anchors.
    accepted = [4, 4, 4, 4, 4, 0, 0, 0, 0, 0]
    walk = served_walk(accepted, depth=4)
    assert walk.total / walk.rounds == pytest.approx(4 / 6)
    assert np.mean(accepted) == 2.0


@given(st.lists(st.integers(0, 8), max_size=60), st.integers(1, 8))
def test_walk_covers_the_text_once(accepted: list[int], depth: int) -> None:
    walk = served_walk(accepted, depth)
    steps = np.diff([*walk.visited, walk.visited[-1] + walk.accepted[-1] + 1]) if walk.rounds else np.array([])
    assert steps.tolist() == (walk.accepted + 1).tolist()
    assert walk.total + walk.rounds >= len(accepted)
    assert walk.accepted.max(initial=0) <= depth


def test_walk_without_anchors_and_with_bad_depth() -> None:
    assert served_walk([], 4).rounds == 0
    with pytest.raises(ValueError, match="at least 1"):
        served_walk([1], 0)


def test_reached_is_acceptance_one_step_later() -> None:
    accepted = [[True, True, False], [False, False, False]]
    assert reached(accepted).tolist() == [[True, True, True], [True, False, False]]


def test_rejected_chains_are_told_apart() -> None:
    rng = np.random.default_rng(2)
    prompts = np.repeat(np.arange(20), 30)
    match = rng.random((600, 4)) < 0.6
    accepted = np.logical_and.accumulate(match, axis=1)
    values = rng.normal(0, 0.1, (600, 4)) + rng.normal(0, 3, 20)[prompts, None]
    values += np.where(reached(accepted), 0.0, -0.5)
    split = split_chains(values, accepted, prompts, resamples=200)
    assert split.rejected.at(0) is None
    assert split.difference.at(0) is None
    for step in (1, 2, 3):
        found = split.difference.at(step)
        assert found is not None
        assert found.low is not None
        assert 0.4 < found.low < 0.5 < found.high < 0.6  # type: ignore[operator]


def test_split_seldom_finds_a_difference_where_there_is_none() -> None:
    rng = np.random.default_rng(4)
    prompts = np.repeat(np.arange(24), 30)
    wrong = []
    for _ in range(30):
        accepted = np.logical_and.accumulate(rng.random((720, 4)) < 0.6, axis=1)
        difference = split_chains(rng.normal(size=(720, 4)), accepted, prompts, resamples=200).difference[1:]
        wrong.append((difference.low > 0) | (difference.high < 0))
    assert np.mean(wrong) <= 0.12


def test_split_leaves_out_nan() -> None:
    values = np.array([[1.0, np.nan], [3.0, 5.0]])
    accepted = np.ones((2, 2), bool)
    split = split_chains(values, accepted, ["a", "a"])
    assert split.accepted.mean.tolist() == [2.0, 5.0]
