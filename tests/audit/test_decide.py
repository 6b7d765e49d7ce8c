"""The test of the audit: its p values, its error over many hypotheses, and what counts as enough."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from driftscope.audit.decide import Difference, Limits, sign_flip_p, signature, too_small
from driftscope.audit.score import Scores


def test_one_hypothesis_has_the_p_of_scipys_sign_flips():
    data = np.random.default_rng(1).normal(0.3, 1, 12)

    def t(x, axis):
        return x.mean(axis) / x.std(axis, ddof=1)

    wanted = stats.permutation_test(
        (data,), t, permutation_type="samples", alternative="greater", n_resamples=np.inf, vectorized=True
    )
    better, worse = sign_flip_p(data[:, None], flips=40_000)
    assert better[0] == pytest.approx(wanted.pvalue, abs=0.01)
    assert worse[0] == pytest.approx(1 - wanted.pvalue, abs=0.01)


def test_many_hypotheses_without_an_effect_raise_few_alarms_together():
    rng = np.random.default_rng(2)
    alarms = 0
    for _ in range(200):
        shared = rng.standard_t(4, (16, 1))
        better, _ = sign_flip_p(shared + rng.standard_t(4, (16, 30)), flips=399)
        alarms += bool((better < 0.05).any())
    # 5% of 200, and four standard deviations.
    assert alarms <= 10 + 4 * (200 * 0.05 * 0.95) ** 0.5


def test_a_large_effect_among_many_is_found_and_its_opposite_is_worse():
    rng = np.random.default_rng(3)
    data = rng.normal(0, 1, (20, 40))
    data[:, 7] += 2
    data[:, 9] -= 2
    better, worse = sign_flip_p(data)
    assert better[7] < 0.01
    assert worse[9] < 0.01
    assert min(np.delete(better, 7)) > 0.01


def test_no_difference_has_p_one():
    data = np.zeros((16, 3))
    data[:, 1] = 1e-12
    data[:, 2] = np.random.default_rng(0).normal(5, 1, 16)
    better, worse = sign_flip_p(data)
    assert list(better[:2]) == [1, 1]
    assert list(worse[:2]) == [1, 1]
    assert better[2] < 0.001


def test_prompts_that_took_no_part_are_left_out():
    rng = np.random.default_rng(4)
    data = rng.normal(1, 1, (24, 2))
    data[18:, 1] = np.nan
    better, _ = sign_flip_p(data)
    alone, _ = sign_flip_p(data[:18, 1:])
    assert better[1] == pytest.approx(alone[0], abs=0.005)


def scores(loss, agree, prompts=16):
    anchors = np.full(prompts, 10.0)
    table = np.outer(anchors, loss)
    hits = np.outer(anchors, agree)
    return Scores(table, hits, np.outer(anchors, [1, *agree[:3]]), hits, anchors, True)


def test_signature_tells_the_first_step_from_the_later_ones():
    limits, declared = Limits(), scores([2, 2, 2, 2], [0.5] * 4)
    for loss, expected in (
        ([1, 1, 1, 1], "both"),
        ([2, 1, 1, 1], "steps 2 on"),
        ([1, 2, 2, 2], "step 1"),
        ([2.01, 2, 2, 2], "none"),
    ):
        assert signature(Difference.of(scores(loss, [0.5] * 4), declared), limits) == expected


@pytest.mark.parametrize(
    ("agree", "expected"),
    [
        # More than half of what was lost is given back.
        ([0.6, 0.45, 0.45, 0.45], ""),
        # A drafter that drifts, and does so a little less.
        ([0.6, 0.3, 0.3, 0.3], "drifts either way"),
    ],
)
def test_later_steps_must_come_back_towards_the_first(agree, expected):
    declared = scores([1, 3, 3, 3], [0.6, 0.2, 0.2, 0.2])
    other = scores([1, 2.5, 2.5, 2.5], agree)
    reason = too_small(Difference.of(other, declared), other, declared, 6.0, later=True, limits=Limits())
    assert expected in reason
    assert bool(reason) is bool(expected)


@pytest.mark.parametrize(
    ("loss", "agree", "expected"),
    [
        (2.0, 0.5, ""),
        (2.0, 0.3, "confidence, not content"),
        (2.99, 0.5, "less than 0.05 nats"),
        # One part in forty of what the drafter knows, and one in sixty.
        (2.9, 0.35, ""),
        (2.94, 0.35, "less than 2% of what the drafter knows"),
        (2.8, 0.305, "confidence, not content"),
    ],
)
def test_a_gain_must_be_of_loss_and_agreement_and_worth_something(loss, agree, expected):
    declared, other = scores([3] * 4, [0.3] * 4), scores([loss] * 4, [agree] * 4)
    reason = too_small(Difference.of(other, declared), other, declared, 6.5, later=False, limits=Limits())
    assert expected in reason
    assert bool(reason) is bool(expected)


def test_a_little_at_every_step_adds_up_unless_the_first_gets_worse():
    declared = scores([2.0] * 4, [0.5, 0.45, 0.45, 0.45])

    def reason(loss, agree):
        other = scores(loss, agree)
        return too_small(Difference.of(other, declared), other, declared, 5.0, later=False, limits=Limits())

    assert reason([1.97, 1.9, 1.9, 1.9], [0.505, 0.48, 0.48, 0.48]) == ""
    assert reason([2.01, 1.8, 1.8, 1.8], [0.505, 0.48, 0.48, 0.48])
    assert reason([1.97, 1.9, 1.9, 1.9], [0.49, 0.48, 0.48, 0.48])


def test_a_drafter_that_drifts_is_not_mended_at_its_later_steps_alone():
    declared = scores([2.0, 6, 6, 6], [0.6, 0.1, 0.1, 0.1])
    other = scores([1.98, 5, 5, 5], [0.601, 0.2, 0.2, 0.2])
    assert too_small(Difference.of(other, declared), other, declared, 6.0, later=False, limits=Limits())


def test_a_loss_that_falls_at_every_step_needs_agreement_over_all_steps_only():
    declared = scores([2.0, 2.6, 2.6, 2.6], [0.4, 0.25, 0.25, 0.25])
    other = scores([1.8, 2.3, 2.3, 2.3], [0.43, 0.31, 0.31, 0.31])
    # Its rise at step 1 is within the noise there.
    noisy = replace(other, agree=other.agree + np.outer(np.resize([6, -6], 16), [0.2, 0, 0, 0]))
    assert too_small(Difference.of(noisy, declared), noisy, declared, 5.0, later=False, limits=Limits()) == ""


def test_a_rise_within_its_own_noise_is_confidence_not_content():
    declared, other = scores([3] * 4, [0.3] * 4), scores([2] * 4, [0.33] * 4)
    noisy = replace(other, agree=other.agree + np.random.default_rng(0).normal(0, 2, (16, 1)))
    difference = Difference.of(noisy, declared)
    assert "confidence" in too_small(difference, noisy, declared, 5.0, later=False, limits=Limits())
