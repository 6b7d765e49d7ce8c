"""Noise reaches what it should, costs what it should, and is the same for every checkpoint of one shape."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from driftscope.chain.pair import Pair
from driftscope.errors import DriftscopeError
from driftscope.figures import noise_figures
from driftscope.probes.compare import Compare
from driftscope.probes.noise import CLEAN, NoiseProbe, anchor_noise, stacked_noise
from driftscope.probes.stacked import copy_of, first_anchors, stacked_anchors, stacked_chains
from driftscope.runs.schema import STEPS
from tests.closeness import assert_same
from tests.probes import planted
from tests.tiny_target import ROUNDED

PROMPTS = 12


def measured(pair: Pair, probe: NoiseProbe, prompts: int = PROMPTS, **made: Any) -> tuple[pd.DataFrame, pd.DataFrame]:
    parts = [probe.measure(planted.subject(pair, number, **made))["steps"] for number in range(prompts)]
    variants = pd.DataFrame(
        [
            {"variant": item.name, "kind": item.kind, "parameters": pd.io.json.ujson_dumps(item.parameters)}
            for item in probe.variants(pair)
        ]
    )
    steps = pd.concat(parts, ignore_index=True)
    return STEPS.frame(STEPS.conform(steps)), variants


def rows_of(steps: pd.DataFrame, variant: str, feed: str) -> pd.DataFrame:
    return steps[(steps["variant"] == variant) & (steps["feed"] == feed)].reset_index(drop=True)


@pytest.mark.parametrize(
    ("pair", "heard", "unheard"),
    [(planted.from_state(), "state", "embed"), (planted.from_embedding(), "embed", "state")],
    ids=["from state", "from embedding"],
)
def test_noise_where_a_drafter_listens_costs_its_length_and_elsewhere_nothing(
    pair: Pair, heard: str, unheard: str
) -> None:
    probe = NoiseProbe(sites=("state", "embed"), alphas=(0.05, 4.0), seeds=2, anchors=8)
    settings = dataclasses.replace(planted.SETTINGS, depth=3)
    found = noise_figures(*measured(pair, probe, settings=settings), resamples=100)
    assert found["clean"]["anchor_mean"]["mean"] == found["depth"] == 3
    assert found["clean"]["anchors"] == 8 * PROMPTS
    quiet, loud = found["sites"][heard]["levels"]
    assert quiet["anchor_mean_kept"]["mean"] == 1.0
    assert loud["anchor_mean_kept"]["high"] < 0.5
    assert loud["served_kept"]["high"] < 0.5
    assert loud["anchors"] == 2 * 8 * PROMPTS
    assert loud["flips"]["low"] > 0.2
    assert loud["kl"]["low"] > quiet["kl"]["high"] > 0
    assert loud["cos_carry"]["high"] < 0.9 < quiet["cos_carry"]["low"]
    assert 0.05 < found["sites"][heard]["half_at"]["anchor_mean"] < 4
    for level in found["sites"][unheard]["levels"]:
        assert level["anchor_mean_kept"] == level["served_kept"] == {"mean": 1.0, "low": 1.0, "high": 1.0}
        assert level["kl"]["mean"] == level["flips"]["mean"] == 0.0
    lost = found["sites"][unheard]["half_at"]
    assert lost == {"served": "beyond the range", "anchor_mean": "beyond the range"}


@pytest.mark.numeric("plain")
def test_alpha_0_changes_nothing_bit_for_bit() -> None:
    pair = planted.planted_pair(0.5 * torch.eye(planted.WIDTH), planted.SUCCESSOR)
    probe = NoiseProbe(sites=("state", "carry", "embed"), alphas=(0.0,), seeds=2, anchors=8)
    steps, variants = measured(pair, probe, 2)
    counts = ["anchors", "matches", "reached", "accepted", "served_rounds", "served_accepted", "served_accepted_sq"]
    for site in probe.sites:
        for seed in range(2):
            noisy = rows_of(steps, f"noise/{site}/0/seed{seed}", "drafted")
            pd.testing.assert_frame_equal(noisy[counts], rows_of(steps, CLEAN, "drafted")[counts])
            text = rows_of(steps, f"noise/{site}/0/seed{seed}", "text")
            assert (text["sum/kl"] == 0).all()
            assert (text["sum/flip"] == 0).all()
            assert_same(text["sum/cos_clean"], text["anchors"], **ROUNDED, dtype=torch.float32)
    assert noise_figures(steps, variants, resamples=50)["sites"]["state"]["half_at"] == {}


def test_noise_at_the_carry_leaves_step_1_alone() -> None:
    probe = NoiseProbe(sites=("state", "carry"), alphas=(4.0,), seeds=1, anchors=None)
    steps, _ = measured(planted.from_state(), probe, 2)
    carry = rows_of(steps, "noise/carry/4/seed0", "text")
    assert (carry.loc[carry["step"] == 1, "sum/kl"] == 0).all()
    assert (carry.loc[carry["step"] == 2, "sum/kl"] > 0).all()
    state = rows_of(steps, "noise/state/4/seed0", "text")
    assert (state["sum/kl"] > 0).all()


def test_noise_at_the_first_step_only_is_forgotten_by_a_drafter_that_hears_tokens() -> None:
    probe = NoiseProbe(sites=("embed",), alphas=(4.0,), seeds=1, steps="first", anchors=8)
    steps, variants = measured(planted.from_embedding(), probe, 2)
    text = rows_of(steps, "noise/embed-first/4/seed0", "text")
    assert (text.loc[text["step"] == 1, "sum/kl"] > 0).all()
    assert (text.loc[text["step"] > 1, "sum/kl"] == 0).all()
    assert list(noise_figures(steps, variants, resamples=50)["sites"]) == ["embed, first step only"]


def test_noise_depends_on_seed_prompt_position_and_width_only() -> None:
    one, other = planted.subject(planted.from_state()), planted.subject(planted.from_embedding())
    assert torch.equal(stacked_noise(one, 3), stacked_noise(other, 3))
    few = first_anchors(one, 5)
    assert torch.equal(stacked_noise(few, 3), stacked_noise(one, 3)[:, :15])
    short = dataclasses.replace(one, settings=dataclasses.replace(one.settings, depth=2))
    assert torch.equal(stacked_noise(short, 3), stacked_noise(one, 3)[:2])
    drawn = [
        anchor_noise(run, seed, prompt, 11, 4, 24)
        for run, seed, prompt in ((0, 0, "a"), (1, 0, "a"), (0, 1, "a"), (0, 0, "b"))
    ]
    assert all(not np.allclose(drawn[0], part) for part in drawn[1:])
    many = anchor_noise(0, 0, "a", 11, 100, 1000)
    assert abs(many.mean()) < 0.01
    assert abs(many.std() - 1) < 0.01


@pytest.mark.numeric("plain")
def test_copies_of_a_chain_are_the_chain() -> None:
    pair = planted.planted_pair(0.5 * torch.eye(planted.WIDTH), planted.SUCCESSOR)
    subject = first_anchors(planted.subject(pair), 6)
    anchors = stacked_anchors(subject, 3)
    measure = Compare(pair.drafter, subject.text, anchors, keep=True)
    stacked = stacked_chains(subject, "text", 3, measure, sites=("carry", "logits"))
    plain = subject.chains("text")
    for copy in range(3):
        for one, other in zip(copy_of(stacked, 3, copy), plain, strict=True):
            assert torch.equal(one["drafted"], other["drafted"])
            assert torch.equal(one["text"], other["text"])
            assert_same(one["carry"].square().mean(-1).sqrt(), other["rms/carry"], **ROUNDED)


@pytest.mark.numeric("plain")
def test_chunks_change_nothing() -> None:
    probe = NoiseProbe(sites=("state",), alphas=(1.0,), seeds=2, anchors=8)
    small = dataclasses.replace(planted.SETTINGS, budget=4000)
    whole, _ = measured(planted.from_state(), probe, 1)
    parts, _ = measured(planted.from_state(), probe, 1, settings=small)
    assert whole.columns.equals(parts.columns)
    for name in whole:
        if whole[name].dtype.kind == "f":
            assert_same(whole[name], parts[name], name, **ROUNDED, dtype=torch.float32)
        else:
            assert whole[name].equals(parts[name]), name


def test_a_prompt_that_only_loops_does_not_stop_the_probe() -> None:
    probe = NoiseProbe(sites=("state",), alphas=(1.0,), seeds=1, anchors=2)
    steps, _ = measured(planted.from_state(), probe, 1, loop=range(12, 40))
    assert (steps["anchors"] == 0).all()
    assert (steps.loc[steps["feed"] == "drafted", "served_rounds"] > 0).all()


@pytest.mark.parametrize("wrong", [{"alphas": (-0.1,)}, {"alphas": ()}, {"seeds": 0}, {"sites": ()}, {"anchors": 0}])
def test_wrong_options_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(DriftscopeError, match="noise needs"):
        NoiseProbe(**wrong)
