"""The step loop on an accelerator that is not there: all on one device, and nothing that makes the host wait."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorDeviceMismatchError, FakeTensorMode

from driftscope.api import probe
from driftscope.chain.block import chain_of
from driftscope.chain.block_measure import BlockMeasure, at_step
from driftscope.chain.chain import Feed, chain_inputs
from driftscope.chain.interventions import Intervention, Noise, PinHeadRMS, PinRMS
from driftscope.chain.measure import StepMeasure
from driftscope.chain.prefix import prefix_pass
from driftscope.checkpoints.config import DrafterConfig
from driftscope.drafter import Drafter
from driftscope.drafter.site import site
from driftscope.probes.compare import Compare
from driftscope.probes.sampling import WithSampling
from driftscope.runs import rows
from driftscope.runs.rows import on_host, to_numpy
from tests import heads, tiny
from tests.absent_device import DEVICE, Repeatable, UnrepeatableError, WaitsError, absent_device, put
from tests.probes import planted
from tests.test_blocks import CONFIG as BLOCK
from tests.test_layers import BASE, CASES
from tests.tiny_pair import CONFIG as PAIR
from tests.tiny_pair import save_pair

DEPTH, HORIZON, SINKS = 3, 4, (0, 14)
"""One sink lies in the prompt, one ahead of the first anchor."""
DRAFTERS: dict[str, DrafterConfig] = {
    "EAGLE-3": tiny.CONFIG,
    "EAGLE 3.1": dataclasses.replace(tiny.CONFIG, fc_norm=True, carry="post"),
    "input norm, scaled": dataclasses.replace(tiny.CONFIG, input_norm=True, embed_scale=2.0, mask_first_embed=True),
    "EAGLE-1": dataclasses.replace(BASE, layer_form="eagle1", fc=True),
    "GRIFFIN": dataclasses.replace(BASE, layer_form="eagle1", fc=True, fc_mlp=True, wide_output=True, carry="second"),
    "MTP": dataclasses.replace(BASE, layer_form="mtp", fc=True),
    "MTP, the target's own layer": heads.HEADS["speculators Qwen3"].config(),
    "DFlash": BLOCK,
    "P-EAGLE": dataclasses.replace(tiny.CONFIG, carry="none", mask_token_id=5),
    "KV empty every round": dataclasses.replace(tiny.CONFIG, draft_kv="round"),
    **{name: dataclasses.replace(BASE, **changes) for name, changes in CASES.items()},
}
Steps = list[dict[str, Tensor]]


class Chains:
    """Chains and what is read off them, made on the CPU; `run` puts them on the device."""

    def __init__(self, config: DrafterConfig, feed: Feed = "drafted") -> None:
        own = config.layer_config is not None
        self.drafter = (heads if own else tiny).drafter(config, (heads if own else tiny).weights(config))
        self.text = tiny.text(config)
        self.anchors = self.text.anchors(HORIZON)
        windows = self.drafter.windows
        self.passed = prefix_pass(self.drafter, self.text, windows, sinks=SINKS, horizon=HORIZON)
        self.inputs = chain_inputs(self.text, self.passed.prefix, windows, anchors=self.anchors, depth=DEPTH, feed=feed)
        kind: Any = BlockMeasure if config.layer_form == "dflash" else StepMeasure
        self.measure = kind(self.drafter, self.text, self.passed.baseline, SINKS, self.anchors, 4)

    def run(self, measure: Any = None, interventions: Sequence[Intervention] = ()) -> Steps:
        fake = FakeTensorMode()
        chain, inputs, measure, added = put(
            fake, [chain_of(self.drafter), self.inputs, measure or self.measure, list(interventions)]
        )
        with absent_device(fake):
            return observed(chain, inputs, measure, added)


def observed(chain: Any, inputs: Any, measure: Any, interventions: Sequence[Intervention]) -> Steps:
    """What observe() does, with plain hooks: they run in the thread that knows of the device."""
    drafter: Drafter = chain.drafter
    rows, values, steps = slice(0, len(inputs.anchors)), {}, []  # type: ignore[var-annotated]

    def keeper(name: str) -> Callable[[Any, Any, Tensor], Tensor]:
        def keep(module: Any, args: Any, output: Tensor) -> Tensor:
            for added in interventions:
                if added.site == name and added.acts(len(steps) + 1):
                    output = added(output, len(steps) + 1, rows)
            values[name] = output
            if name == drafter.step_sites[-1]:
                at = range(1, DEPTH + 1) if drafter.config.layer_form == "dflash" else [len(steps) + 1]
                for step in at:
                    seen = at_step(drafter, values, drafter.first_sites, step) if len(at) > 1 else dict(values)
                    steps.append(measure(step, rows, seen))
                values.clear()
            return output

        return keep

    for name in (*drafter.first_sites, *drafter.step_sites):
        site(drafter, name).register_forward_hook(keeper(name))
    assert chain(inputs).device.type == DEVICE
    assert len(steps) == DEPTH
    return steps


@pytest.mark.parametrize("name", DRAFTERS)
def test_nothing_in_the_step_loop_waits_for_the_device(name: str) -> None:
    steps = Chains(DRAFTERS[name], "text" if name == "EAGLE 3.1" else "drafted").run()
    assert all(value.device.type == DEVICE for step in steps for value in step.values())
    assert {"mass", "head_entropy", "prob", "heavy_mass"} < steps[-1].keys()


def test_nothing_in_a_comparison_or_an_intervention_waits_for_the_device() -> None:
    chains = Chains(DRAFTERS["EAGLE 3.1"], "text")
    width, count = chains.drafter.config.hidden_size, len(chains.anchors)
    added = [
        Noise("state", 0.5, torch.randn(DEPTH, count, width)),
        Noise("embed", 0.5, torch.randn(DEPTH, count, width)),
        PinRMS("carry", torch.ones(count)),
        PinHeadRMS("layers.0.k", torch.ones(2)),
    ]
    clean = [
        {"drafted": torch.zeros(count).long(), "log_probs": torch.zeros(count, 20), "carry": torch.zeros(count, width)}
    ]
    for measure in (
        Compare(chains.drafter, chains.text, chains.anchors, keep=True),
        Compare(chains.drafter, chains.text, chains.anchors, reference=clean * DEPTH),
        chains.measure,
    ):
        assert chains.run(measure, added)


@dataclasses.dataclass
class Head:
    """A target's, whose weight moves with the rest."""

    weight: Tensor

    def head(self, hidden: Tensor) -> Tensor:
        return hidden @ self.weight.mT


def test_nothing_in_the_sampling_acceptance_waits_for_the_device() -> None:
    chains = Chains(planted.CONFIG, "text")
    subject = planted.subject(planted.from_state())
    subject.pair.target = Head(planted.UNITS[: planted.TOKENS])  # type: ignore[assignment]
    chains.drafter = subject.pair.drafter
    chains.inputs = chain_inputs(
        subject.text, subject.passed.prefix, subject.windows, anchors=subject.anchors, depth=DEPTH, feed="text"
    )
    assert "sampling" in chains.run(WithSampling(subject.measure(), subject, 1.0))[-1]


WAITING: dict[str, Callable[[Tensor], Any]] = {
    "a number": lambda value: value * float(value.sum()),
    "a truth": lambda value: value if value.sum() > 0 else -value,
    "a list": lambda value: value[:, 0].tolist(),
    "a boolean index": lambda value: value[value[:, 0] > 0],
    "unequal counts": lambda value: value.unique_consecutive(),
    "off the device": lambda value: value.cpu(),
    "onto the device": lambda value: value + torch.ones(value.shape).to(value.device),
}


@pytest.mark.parametrize("name", WAITING)
def test_what_waits_is_seen(name: str) -> None:
    with pytest.raises(WaitsError):
        Chains(tiny.CONFIG).run(lambda step, rows, values: {"made": WAITING[name](values["carry"])})


def test_what_mixes_devices_is_seen() -> None:
    with pytest.raises(FakeTensorDeviceMismatchError):
        Chains(tiny.CONFIG).run(lambda step, rows, values: {"made": values["carry"] + torch.ones(24)})


def test_what_does_not_repeat_is_seen() -> None:
    with pytest.raises(UnrepeatableError):
        Chains(tiny.CONFIG).run(lambda step, rows, values: {"made": values["carry"].cumsum(-1)})
    with Repeatable():
        torch.arange(3).cumsum(0)


@pytest.mark.parametrize("name", ["EAGLE 3.1", "DFlash", "learned sinks in a window"])
def test_the_prefix_pass_stays_on_one_device(name: str) -> None:
    drafter, text = (held := Chains(DRAFTERS[name])).drafter, held.text
    # Sinks come from the host, once.
    fake = FakeTensorMode(allow_non_fake_inputs=True)
    drafter, text = put(fake, [drafter, text])
    rows = len(held.text.token_ids) - 1
    with absent_device(fake):
        passed = prefix_pass(drafter, text, drafter.windows, sinks=SINKS, horizon=HORIZON, rows=rows)
    assert passed.baseline.sink.device.type == passed.prefix[0].keys.device.type == DEVICE


def test_every_probe_runs_in_bfloat16_and_with_deterministic_kernels(tmp_path: Path) -> None:
    pair = save_pair(tmp_path, dataclasses.replace(PAIR, fc_norm=True, carry="post"))
    with Repeatable():
        run = probe(pair.checkpoint, out=tmp_path / "run", device="cpu", dtype="bfloat16", probes="all", **pair.options)
    assert {"clean", "noise", "pin", "depth", "layers", "template", "length"} <= set(run.probes)
    steps = run.table("steps")
    assert {"noise/clean", "pin/keys", "clean"} <= set(steps["variant"])


def test_quantities_leave_the_device_together_and_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    held = [torch.randn(3, 2, 4), torch.arange(5), torch.randn(3), torch.arange(6).view(2, 3), torch.ones(2).bool()]
    held += [torch.randn(0, 7), torch.tensor([1.0, 3.0e38], dtype=torch.bfloat16)]
    assert [value.dtype for value in on_host(held)][-1] == torch.float32
    monkeypatch.setattr(rows, "_on_cpu", lambda values: False)
    for before, after in zip(held, on_host(held), strict=True):
        assert torch.equal(after, before.float() if before.dtype == torch.bfloat16 else before)
    steps = [{"a": held[0], "b": held[1]}, {"a": held[2], "b": held[3]}]
    assert [list(step) for step in to_numpy(steps, ("b",))] == [["b"], ["b"]]
    assert (to_numpy(steps)[1]["b"] == held[3].numpy()).all()
