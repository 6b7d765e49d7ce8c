"""Values that the texts cannot tell apart are named together, and a winner's neighbours are asked too."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from benchmarks.twins import BY_NAME, TWINS, broken, mended, shown
from driftscope.audit.alike import alike
from driftscope.audit.decide import Difference, Limits
from driftscope.audit.hypotheses import Hypothesis, TargetFacts, aux_hypothesis
from driftscope.audit.refine import STANDARD_THETAS, refinements
from driftscope.audit.setting import Lens, Setting
from tests import tiny
from tests.audit import pair as planted

TARGET = TargetFacts(num_layers=8, embedding=torch.zeros(60, 24), head=torch.zeros(60, 24))
LIMITS = Limits()


def difference(mean, noise, present=slice(None)):
    values = np.full(24, np.nan)
    values[present] = (mean + noise)[present]
    return Difference(values, values, values, values, values)


def noise(seed, size):
    return np.random.default_rng(seed).normal(0, size, 24)


def test_only_what_lies_within_the_noise_of_the_best_is_alike():
    shared = noise(0, 1.0)
    found = {
        # Texts differ far more than the alternatives do; the comparison is paired.
        3: difference(0.30, shared),
        5: difference(0.29, shared + noise(1, 0.05)),
        6: difference(0.10, shared + noise(2, 0.05)),
        8: difference(0.00, shared + noise(3, 0.05)),
    }
    assert alike(3, found, LIMITS) == [3, 5]


def test_coverage_is_that_of_the_interval():
    """Two values that are the same but for noise are told apart in about one case of twenty, half of them this way round."""
    rng = np.random.default_rng(4)
    apart = sum(
        alike(0, {0: difference(0, rng.normal(0, 1, 24)), 1: difference(0, rng.normal(0, 1, 24))}, LIMITS) == [0]
        for _ in range(1000)
    )
    assert abs(apart - 25) <= 4 * 25**0.5


def test_without_prompts_in_common_nothing_is_alike():
    one = difference(0.3, noise(0, 0.1), slice(0, 12))
    other = difference(0.3, noise(1, 0.1), slice(12, 24))
    assert alike(0, {0: one, 1: other}, LIMITS) == [0]
    assert alike(0, {0: one, 1: one}, LIMITS) == [0, 1]


def theta(value):
    return Hypothesis("rope.theta", "1000", f"{value:g}", "DS204", {"rope.theta": value})


def test_a_rope_base_that_won_is_asked_among_the_standard_ones():
    setting = Setting(dataclasses.replace(tiny.CONFIG, rope=dataclasses.replace(tiny.CONFIG.rope, theta=1000.0)), {})
    tried = [theta(10000.0), theta(500000.0)]
    found = refinements(tried[1], setting, TARGET, tried)
    assert {h.changes["rope.theta"] for h in found} == set(STANDARD_THETAS) - {10000.0, 500000.0}
    assert {(h.switch, h.code, h.declared) for h in found} == {("rope.theta", "DS204", "1000")}


def test_boundaries_that_won_are_asked_beside_their_neighbours():
    setting = Setting(tiny.CONFIG, {})
    won = aux_hypothesis(setting, (0, 4, 8), "0, 4, 8")
    tried = [won, aux_hypothesis(setting, (0, 5, 8), "0, 5, 8")]
    found = {h.changes["aux_boundaries"] for h in refinements(won, setting, TARGET, tried)}
    # Neither outside the target, nor tried already.
    assert found == {(1, 4, 8), (0, 3, 8), (0, 4, 7)}
    crowded = aux_hypothesis(setting, (3, 4, 5), "3, 4, 5")
    found = {h.changes["aux_boundaries"] for h in refinements(crowded, setting, TARGET, [crowded])}
    assert found == {(2, 4, 5), (3, 4, 6), (2, 3, 4), (4, 5, 6)}


def test_other_switches_have_no_finer_grid():
    hypothesis = Hypothesis("carry", "pre", "post", "DS201", {"carry": "post"})
    assert refinements(hypothesis, Setting(tiny.CONFIG, {}), TARGET, [hypothesis]) == []


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.name)
@pytest.mark.parametrize("variant", ["eagle3", "eagle3.1"])
def test_a_planted_fault_is_not_the_sound_drafter_until_it_is_mended(twin, variant):
    config, weights = planted.planted_config(variant), planted.planted_weights(variant)
    if any(getattr(config, switch) != value for switch, value in twin.needs.items()):
        pytest.skip(f"no case: {variant} has not what this fault breaks")
    head = planted.planted_target().head_weight
    sound = Setting(config, weights)
    assert mended(sound, sound)
    assert not mended(Setting(*broken((twin.name,), config, weights, head), shown((twin.name,))), sound)


def test_a_right_switch_with_a_wrong_value_is_not_mended():
    config, weights = planted.planted_config("eagle3"), planted.planted_weights("eagle3")
    sound = Setting(config, weights)
    head = planted.planted_target().head_weight
    bad = Setting(*broken(("one boundary",), config, weights, head))
    assert mended(bad.changed({"aux_boundaries": planted.BOUNDARIES}, {}, {}), sound)
    assert not mended(bad.changed({"aux_boundaries": (2, 4, 6)}, {}, {}), sound)
    ordered = Setting(*broken(("aux order",), config, weights, head))
    assert mended(ordered.changed({"aux_boundaries": planted.BOUNDARIES[::-1]}, {}, {}), sound)
    assert not mended(ordered.changed({"aux_boundaries": (4, 2, 5)}, {}, {}), sound)
    late = Setting(config, weights, Lens(feature_shift=-1))
    assert not mended(late, sound)
    assert mended(late.changed({}, {}, {"feature_shift": 0}), sound)


def test_every_twin_has_a_name_of_its_own():
    assert len(BY_NAME) == len(TWINS)
