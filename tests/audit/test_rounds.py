"""The two passes of a round: who is given up after the first, and that nothing else changes by it."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from benchmarks.twins import broken
from driftscope.audit.batches import FIRST, prepare
from driftscope.audit.decide import Difference, Limits
from driftscope.audit.hypotheses import Hypothesis, hypotheses
from driftscope.audit.rounds import Course, hopeless, run_round
from driftscope.audit.run import facts
from driftscope.audit.score import Runner
from driftscope.audit.setting import Setting
from driftscope.captures.capture import capture
from tests.audit import pair as planted

LIMITS = Limits(flips=1999)
TRIED = {"carry", "residual", "rms_norm_eps", "position_increment", "norms before fc"}


def difference(first, later, spread=0.05, prompts=FIRST):
    """Falls of the loss around these means, by prompt; 30 more prompts took no part."""
    noise = np.random.default_rng(5).normal(0, spread, (2, prompts))
    noise -= noise.mean(1, keepdims=True)
    missing = np.full(30, np.nan)
    first, later = (np.concatenate([mean + part, missing]) for mean, part in zip((first, later), noise, strict=True))
    return Difference(first, later, 0 * first, 0 * first, 0 * first)


@pytest.mark.parametrize(
    ("reach", "first", "later", "status"),
    [
        ("all", -0.5, -0.5, "worse"),
        ("later", 0.0, -0.5, "worse"),
        ("all", 0.3, 0.3, None),
        # Worse at step 1, better at the later steps: not settled yet.
        ("all", -0.5, 0.5, None),
        ("all", 0.0, 0.0, "indistinguishable"),
        ("all", 0.03, 0.03, None),
    ],
)
def test_only_what_cannot_come_to_matter_is_given_up(reach, first, later, status):
    tried = [Hypothesis("switch", "declared", "other", "DS200", reach=reach)]
    spread = 0.02 if status == "indistinguishable" else 0.05
    found = hopeless(tried, {0: difference(first, later, spread)}, LIMITS)
    assert found.get(0, (None,))[0] == status


def test_too_few_prompts_give_nothing_up():
    tried = [Hypothesis("switch", "declared", "other", "DS200")]
    assert hopeless(tried, {0: difference(-0.5, -0.5, prompts=FIRST - 1)}, LIMITS) == {}


def test_a_round_in_two_passes_comes_to_what_one_pass_comes_to():
    target = planted.planted_target()
    records = capture(target, planted.prompts(36), max_new_tokens=36, boundaries=range(planted.LAYERS + 1))
    config, weights = planted.planted_config("eagle3"), planted.planted_weights("eagle3")
    setting = Setting(*broken(("carry",), config, weights, target.head_weight))
    tried = [h for h in hypotheses(setting, facts(target)) if h.switch in TRIED]
    two = prepare(target, records, anchors=6)
    assert 0 < two.first < len(two.batches)
    assert sum(len(batch.prompts) for batch in two.batches[: two.first]) == FIRST
    rounds = []
    for material in (two, dataclasses.replace(two, first=len(two.batches))):
        runner = Runner(material, target.embedding_weight, target.head_weight, target.dtype)
        nobody = np.zeros(len(material.captures), bool)
        rounds.append(run_round(1, setting, tried, runner, LIMITS, Course(nobody, lambda: 0.0)))
    short, whole = rounds
    assert short.winner is not None
    assert (short.winner, short.winner.switch) == (whole.winner, "carry")
    assert short.winner_row.loss_later == whole.winner_row.loss_later
    given_up = [row for row in short.rows if row.prompts == FIRST]
    assert given_up
    assert {row.status for row in given_up} <= {"worse", "indistinguishable"}
    assert all(row.loss_first is not None and row.p_worse is not None for row in given_up)
    assert {row.prompts for row in whole.rows if row.prompts} == {len(two.captures)}
    same = [(a.status, b.status) for a, b in zip(short.rows, whole.rows, strict=True)]
    assert all(a == b or a == "indistinguishable" for a, b in same)
