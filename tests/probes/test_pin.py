"""Pins restore what was scaled, touch nothing that keeps its size, and tell magnitude from other causes."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
import pytest
import torch

from driftscope.chain.pair import Pair
from driftscope.drafter.norms import rms
from driftscope.figures import pin_figures
from driftscope.probes.pin import FREE, PINS, PROBE, pins, prompt_key_rms
from driftscope.runs.schema import HEADS, STEPS
from tests.closeness import assert_same
from tests.probes import planted
from tests.tiny_target import ROUNDED

PROMPTS = 12
SETTINGS = dataclasses.replace(planted.SETTINGS, depth=5)
KEYS = 0.15 * torch.randn(16, planted.WIDTH, generator=torch.Generator().manual_seed(3))
# Two query heads share a key head: a state then attends to what resembles it.
ALIKE = {
    "layers__0__self_attn__k_proj__weight": KEYS,
    "layers__0__self_attn__q_proj__weight": KEYS.view(2, 8, planted.WIDTH).repeat_interleave(2, 0).reshape(32, -1),
}


def scaling(factor: float, **weights: torch.Tensor) -> Pair:
    """Carries its state, `factor` times as large. Without a norm before its attention, a larger state attends more sharply."""
    return planted.planted_pair(planted.ZERO, factor * torch.eye(planted.WIDTH), **{**ALIKE, **weights})


def measured(pair: Pair, prompts: int = PROMPTS) -> tuple[pd.DataFrame, pd.DataFrame]:
    parts = [
        PROBE.measure(planted.subject(pair, number, SETTINGS, final=planted.random_rows(number)))
        for number in range(prompts)
    ]
    steps, heads = (pd.concat([part[name] for part in parts], ignore_index=True) for name in ("steps", "heads"))
    return STEPS.frame(STEPS.conform(steps)), HEADS.frame(HEADS.conform(heads))


def state_rms(steps: pd.DataFrame, variant: str) -> list[float]:
    rows = steps[steps["variant"] == variant]
    return (rows["sum/rms/state"].groupby(rows["step"]).sum() / rows["anchors"].groupby(rows["step"]).sum()).tolist()


@pytest.mark.numeric("plain")
def test_a_pin_restores_a_scaled_carry_and_finds_the_drift_that_magnitude_caused() -> None:
    steps, heads = measured(scaling(1.4))
    free = state_rms(steps, FREE)
    assert_same(free, [free[0] * 1.4**k for k in range(5)], **ROUNDED, dtype=torch.float32)
    assert_same(state_rms(steps, "pin/fused"), [free[0]] * 5, **ROUNDED, dtype=torch.float32)
    assert_same(state_rms(steps, "pin/step1"), [free[0], *[1.4 * free[0]] * 4], **ROUNDED, dtype=torch.float32)
    found = pin_figures(steps, heads, resamples=200)
    assert found["drift"] == "drift"
    assert found["free"]["slope"]["low"] > 0
    for name in ("fused", "step1"):
        assert found["pins"][name]["share_from_magnitude"]["low"] > 0.3, name
        assert "magnitude causes" in found["pins"][name]["sentence"]
    assert "by itself" not in found["pins"]["step1"]["sentence"]
    assert "not a fix" in found["caveat"]


def test_a_carry_that_keeps_its_size_has_nothing_to_pin_though_attention_drifts() -> None:
    steps, heads = measured(scaling(1.0))
    free = heads[heads["variant"] == FREE].drop(columns="variant").reset_index(drop=True)
    for name in ("pin/fused", "pin/step1"):
        same = heads[heads["variant"] == name].drop(columns="variant").reset_index(drop=True)
        # A size over itself is 1 up to the rounding of two float32 sums over the width.
        rounding = planted.WIDTH * float(np.finfo(np.float32).eps)
        pd.testing.assert_frame_equal(same, free, check_exact=False, rtol=rounding, atol=rounding)
    found = pin_figures(steps, heads, resamples=200)
    # Every step repeats the anchor's state, and like attends to like.
    assert found["drift"] == "drift"
    for name in ("fused", "step1"):
        share = found["pins"][name]["share_from_magnitude"]
        assert share == pytest.approx({"mean": 0.0, "low": 0.0, "high": 0.0}, abs=rounding)
        assert found["pins"][name]["sentence"].startswith(
            "no share of the drift can be put down to magnitude: 0% (95% 0% to 0%)"
        )
        assert "by itself" in found["pins"][name]["sentence"]
    assert "by itself" not in found["pins"]["keys"]["sentence"]


def test_a_pin_that_makes_it_worse_is_told_as_such() -> None:
    # A state that shrinks attends less sharply: pinned to its full size, the drift is larger.
    found = pin_figures(*measured(scaling(0.95)), resamples=200)
    assert found["drift"] == "drift"
    share = found["pins"]["fused"]["share_from_magnitude"]
    assert share["high"] < 0
    assert "magnitude does not cause the drift" in found["pins"]["fused"]["sentence"]


def test_uniform_attention_leaves_no_drift_to_explain() -> None:
    blind = {"layers__0__self_attn__q_proj__weight": torch.zeros(32, planted.WIDTH)}
    steps, heads = measured(scaling(1.4, **blind))
    found = pin_figures(steps, heads, resamples=200)
    assert found["drift"] == "none"
    for pin in found["pins"].values():
        assert "share_from_magnitude" not in pin
        assert pin["sentence"].startswith("no drift to explain")


def test_few_prompts_are_not_measurable() -> None:
    found = pin_figures(*measured(scaling(1.4), 2), resamples=50)
    assert found["drift"] == "not measurable"
    assert all(pin["sentence"].startswith("not measurable") for pin in found["pins"].values())
    assert pin_figures(*(frame.iloc[:0] for frame in measured(scaling(1.4), 1))) == {}


def test_the_cost_in_accepted_length_is_told() -> None:
    # Only a state that grows outweighs what the embedding says, which is wrong.
    reverse = torch.zeros(planted.WIDTH, planted.WIDTH)
    reverse[-torch.arange(planted.TOKENS) % planted.TOKENS, torch.arange(planted.TOKENS)] = 1.0
    pair = planted.planted_pair(1.9 * reverse, 2 * planted.SUCCESSOR)
    parts = [PROBE.measure(planted.subject(pair, number, SETTINGS, length=100)) for number in range(2)]
    steps, heads = (pd.concat([part[name] for part in parts], ignore_index=True) for name in ("steps", "heads"))
    found = pin_figures(steps, heads, resamples=50)
    assert found["free"]["length"]["anchor_mean"]["mean"] > 4
    assert found["pins"]["fused"]["length_kept"]["anchor_mean"]["mean"] < 0.5
    assert found["pins"]["fused"]["length_kept"]["served"]["mean"] < 0.5
    assert found["pins"]["keys"]["length_kept"]["anchor_mean"]["mean"] == 1.0


@pytest.mark.numeric("plain")
def test_keys_are_pinned_to_the_prompts_keys_of_their_head() -> None:
    subject = planted.subject(scaling(1.4), settings=SETTINGS, final=planted.random_rows(0))
    free = subject.clean("drafted")
    sizes = prompt_key_rms(subject.passed, subject.text.prompt_length, subject.settings.sinks)
    expected = rms(subject.passed.prefix[0].keys[:, 1:12]).mean(-1)
    assert_same(sizes[0], expected, **ROUNDED)

    def keys(step: int, rows: slice, values: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {"k": rms(values["layers.0.k"])}

    added = pins("pin/keys", subject, free)
    seen = subject.chains("drafted", interventions=added, measure=keys, sites=("layers.0.k",))
    for step in seen[1:]:
        assert_same(step["k"], expected.expand_as(step["k"]), **ROUNDED)
    assert not torch.allclose(seen[0]["k"], expected.expand_as(seen[0]["k"]))


def test_every_pin_is_a_variant() -> None:
    assert [item.name for item in PROBE.variants(scaling(1.0))] == [FREE, *PINS]
