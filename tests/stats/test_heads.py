"""Ranking of heads."""

from __future__ import annotations

import numpy as np

from driftscope.stats import rank_heads


def test_planted_heads_lead_whatever_their_sign() -> None:
    drift = np.random.default_rng(1).normal(0, 0.05, (30, 2, 9))
    drift[:, 1, 4] -= 0.4
    drift[:, 0, 2] += 0.2
    ranking = rank_heads(drift, resamples=100)
    assert [(entry.layer, entry.head) for entry in ranking[:2]] == [(1, 4), (0, 2)]
    assert len(ranking) == 18
    assert ranking[0].drift.high < 0  # type: ignore[operator]
    assert [entry.p_value < 0.05 for entry in ranking[:2]] == [True, True]  # type: ignore[operator]


def test_no_head_stands_out_of_noise() -> None:
    ranking = rank_heads(np.random.default_rng(1).normal(size=(30, 2, 9)), resamples=100)
    assert all(entry.p_value is not None and entry.p_value > 0.05 for entry in ranking)


def test_heads_without_drift_or_data() -> None:
    drift = np.zeros((20, 1, 3))
    drift[:, 0, 1] = np.nan
    ranking = rank_heads(drift, resamples=100)
    assert [entry.head for entry in ranking] == [0, 2]
    assert [entry.p_value for entry in ranking] == [1.0, 1.0]
    assert rank_heads(drift[:5], resamples=100)[0].p_value is None
