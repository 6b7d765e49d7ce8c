"""Figures of a drafter in training: the same as a probe's, and no trace of the measurement."""

from __future__ import annotations

import copy
import dataclasses
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from driftscope.api import probe_pair
from driftscope.chain.pair import load_pair
from driftscope.errors import CheckpointError, PromptError, TargetError
from driftscope.integrations import drift_metrics, training_capture
from driftscope.integrations import training as module
from driftscope.integrations.training import TrainingCapture
from driftscope.integrations.undisturbed import undisturbed
from driftscope.probes import chosen
from driftscope.target.model import Target
from tests import tiny_pair, tiny_target
from tests.closeness import assert_same
from tests.integrations.live import LiveDrafter, live_drafter, stored, tiny_capture
from tests.tiny_target import ROUNDED

FIVE = ("norm_growth", "sink_slope", "self_excess_slope", "served_length")


@pytest.fixture(scope="module")
def target() -> Target:
    return tiny_target.tiny_target()


@pytest.fixture(scope="module")
def held(target: Target, tmp_path_factory: pytest.TempPathFactory) -> TrainingCapture:
    return tiny_capture(target, tmp_path_factory.mktemp("capture"))


def random_states() -> list[Any]:
    return [
        random.getstate(),
        [part.tolist() if hasattr(part, "tolist") else part for part in np.random.get_state()],
        torch.get_rng_state().tolist(),
    ]


def train(drafter: LiveDrafter, steps: int, measure: Any = None) -> dict[str, Tensor]:
    """The state after a short training from one seed."""
    torch.manual_seed(3)
    drafter.train()
    optimizer = torch.optim.AdamW(drafter.parameters(), lr=1e-2)
    for _ in range(steps):
        drafter(torch.randn(6, 4))["loss"].backward()
        if measure is not None:
            measure(drafter)
        optimizer.step()
        optimizer.zero_grad()
    return {**drafter.state_dict(), "drawn": torch.rand(3)}


def test_training_goes_on_bit_for_bit(held: TrainingCapture) -> None:
    found = []
    plain = train(live_drafter(), 3)
    watched = train(live_drafter(), 3, lambda drafter: found.append(drift_metrics(drafter, held)))
    assert plain.keys() == watched.keys()
    assert all(torch.equal(plain[name], watched[name]) for name in plain)
    assert len({metrics["driftscope/norm_growth"] for metrics in found}) == 3


def test_nothing_is_left_behind(held: TrainingCapture) -> None:
    drafter = live_drafter()
    drafter.dropout.eval()
    drafter(torch.randn(6, 4))["loss"].backward()
    before = copy.deepcopy(drafter.state_dict())
    gradients = {name: None if p.grad is None else p.grad.clone() for name, p in drafter.named_parameters()}
    modes = {name: part.training for name, part in drafter.named_modules()}
    needs = {name: (p.requires_grad, p.data_ptr()) for name, p in drafter.named_parameters()}
    states = random_states()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            inside = drift_metrics(drafter, held)
            assert torch.is_autocast_enabled("cpu")
        assert torch.get_default_dtype() == torch.bfloat16
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch.is_grad_enabled()
    assert random_states() == states
    assert {name: part.training for name, part in drafter.named_modules()} == modes
    assert {name: (p.requires_grad, p.data_ptr()) for name, p in drafter.named_parameters()} == needs
    after = drafter.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    for name, parameter in drafter.named_parameters():
        assert (parameter.grad is None) == (gradients[name] is None)
        assert parameter.grad is None or torch.equal(parameter.grad, gradients[name])
    assert not any(part._forward_hooks or part._backward_hooks for part in drafter.modules())
    # Measured in float32 whatever the loop has set.
    assert inside == drift_metrics(drafter, held)
    with torch.inference_mode():
        assert drift_metrics(drafter, held) == inside


def test_random_states_come_back_after_an_error() -> None:
    states = random_states()

    def draw() -> None:
        with undisturbed():
            assert not torch.is_grad_enabled()
            random.random(), np.random.rand(), torch.rand(1)
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        draw()
    assert random_states() == states
    assert torch.is_grad_enabled()


@pytest.mark.numeric("plain")
def test_the_figures_are_those_of_a_probe(target: Target, tmp_path: Path) -> None:
    saved = tiny_pair.save_pair(tmp_path)
    pair = load_pair(saved.checkpoint, target)
    options = {"prompts": saved.prompts, "max_new_tokens": 24, "depth": 4, "horizon": 4, "sink": (0,)}
    run = probe_pair(pair, out=tmp_path / "run", probes=chosen("norms"), cache_dir=saved.cache, **options)
    summary = run.summary(4)
    held = training_capture(
        target, pair.checkpoint.weights, config=pair.checkpoint.raw_config, prompts=saved.prompts, max_new_tokens=24, depth=4,
        sinks=(0,), anchors=None, cache_dir=saved.cache,
    )  # fmt: skip
    found = drift_metrics(pair.checkpoint.weights, held, config=pair.checkpoint.raw_config)
    last, later = summary["steps"][-1], summary["steps"][1:]
    sink, own = (
        [step[kind][part]["mean"] for step in later] for kind, part in (("mass", "sink"), ("excess", "self_generated"))
    )
    expected = {
        "norm_growth": last["growth"]["mean"],
        "matched_growth": last["matched_growth"]["mean"],
        "displacement": last["displacement"]["mean"],
        "served_length": summary["acceptance_length"]["served"]["mean"],
        "sink_slope": np.polyfit((2, 3, 4), sink, 1)[0],
        "self_excess_slope": np.polyfit((2, 3, 4), own, 1)[0],
    }  # fmt: skip
    for name, value in expected.items():
        size = max(1.0, abs(value))
        assert_same(found[f"driftscope/{name}"], value, name, **ROUNDED, size=size, dtype=torch.float32)


@pytest.mark.parametrize("layout", ["specforge", "speculators", "torchspec", "safeailab"])
def test_layouts_are_recognised_by_their_state_dict(layout: str, held: TrainingCapture) -> None:
    expected = drift_metrics(live_drafter(), held)
    state, config = stored(layout)
    assert drift_metrics(state, held, config=config) == expected
    assert drift_metrics(LiveDrafter(state, SimpleNamespace(to_dict=lambda: config)), held) == expected


class Holder(nn.Module):
    def __init__(self, name: str, inner: nn.Module, beside: nn.Module | None = None) -> None:
        super().__init__()
        self.add_module(name, inner)
        if beside is not None:
            self.add_module("target_model", beside)


@pytest.mark.parametrize("name", ["module", "_orig_mod", "draft_model"])
def test_wrappers_are_looked_through(name: str, held: TrainingCapture) -> None:
    expected = drift_metrics(live_drafter(), held)
    beside = nn.Linear(2, 2) if name == "draft_model" else None
    assert drift_metrics(Holder(name, live_drafter(), beside), held) == expected


def test_switches_are_those_of_the_config_and_the_overrides(held: TrainingCapture) -> None:
    post = tiny_pair.CONFIG.replace("user", carry="post")
    found = drift_metrics(live_drafter(config=post), held)
    assert found == drift_metrics(live_drafter(), held, overrides={"carry": "post"})
    assert found["driftscope/norm_growth"] == pytest.approx(1.0, abs=0.1)
    assert drift_metrics(live_drafter(), held)["driftscope/norm_growth"] != pytest.approx(1.0, abs=0.1)


def test_a_target_is_captured_at_the_first_call_only(
    target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []

    def once(*_: Any, **given: Any) -> TrainingCapture:
        made.append(given)
        return tiny_capture(target, tmp_path, overrides=given["overrides"])

    monkeypatch.setattr(module, "training_capture", once)
    first = drift_metrics(live_drafter(), target)
    assert drift_metrics(live_drafter(), target) == first
    assert len(made) == 1
    drift_metrics(live_drafter(), target, overrides={"aux_boundaries": (0, 1, 2)})
    assert len(made) == 2


def test_noise_finds_the_alpha_that_costs_half(held: TrainingCapture, monkeypatch: pytest.MonkeyPatch) -> None:
    accepted = {"counts": np.array([20.0, 20.0, 15.0, 5.0, 0.0])}
    monkeypatch.setattr(module, "_under_noise", lambda subject, alphas: accepted["counts"][: len(alphas) + 1])
    found = drift_metrics(live_drafter(), held)
    # Between .2, where 75% are left, and .5, where 25% are: the middle on a log scale.
    assert found["driftscope/noise_half_point"] == pytest.approx((0.2 * 0.5) ** 0.5)
    assert found["driftscope/noise_kept"] == 0.25
    short = drift_metrics(live_drafter(), held, alphas=(0.1,))
    assert "driftscope/noise_half_point" not in short
    assert short["driftscope/noise_kept"] == 1.0
    assert not any("noise" in name for name in drift_metrics(live_drafter(), held, alphas=()))
    accepted["counts"] = np.array([6.0, 6.0, 3.0, 1.0, 0.0])
    assert not any("noise" in name for name in drift_metrics(live_drafter(), held))


def test_undisturbed_noise_is_that_of_the_clean_chains(held: TrainingCapture) -> None:
    from driftscope.chain.prompt_chains import Subject
    from driftscope.runs.rows import joint

    with undisturbed(), module._pair(live_drafter(), held, None, None) as pair:
        for record in held.captures:
            subject = Subject(pair, record, held.settings)
            counts = module._under_noise(subject, (100.0,))
            steps = subject.clean("drafted")
            match = np.stack([(step["drafted"] == step["text"]).numpy() for step in steps], 1)[:8]
            assert counts[0] == joint(match)[~subject.looping[:8]].sum()
            assert counts[1] <= counts[0] or counts[0] == 0


def test_what_cannot_be_measured_is_absent(held: TrainingCapture) -> None:
    blind = dataclasses.replace(held, settings=dataclasses.replace(held.settings, sinks=()))
    found = drift_metrics(live_drafter(), blind)
    assert "driftscope/sink_slope" not in found
    assert {f"driftscope/{name}" for name in FIVE} - set(found) == {"driftscope/sink_slope"}
    diverged = live_drafter()
    with torch.no_grad():
        diverged.fc.weight.fill_(float("nan"))
    metrics = drift_metrics(diverged, held, prefix="")
    assert "norm_growth" not in metrics
    assert all(np.isfinite(value) for value in metrics.values())


def test_what_does_not_fit_is_told_in_a_line(held: TrainingCapture, target: Target, tmp_path: Path) -> None:
    drafter = live_drafter()
    with pytest.raises(CheckpointError, match="config is a int"):
        drift_metrics(drafter, held, config=3)
    state, config = stored()
    del state["norm.weight"]
    with pytest.raises(CheckpointError, match=r"the drafter in training: .*norm\.weight is missing"):
        drift_metrics(state, held, config=config)
    with pytest.raises(TargetError, match="holds no boundary"):
        drift_metrics(drafter, held, overrides={"aux_boundaries": (0, 1, 2)})
    with pytest.raises(PromptError, match="too short for chains of 40 steps"):
        tiny_capture(target, tmp_path, depth=40)


def test_a_bfloat16_module_is_measured_in_float32(held: TrainingCapture) -> None:
    half = live_drafter().to(torch.bfloat16)
    whole = copy.deepcopy(half).float()
    assert drift_metrics(half, held) == drift_metrics(whole, held)
    assert half.fc.weight.dtype == torch.bfloat16
