"""Chains against a sequential loop that runs the whole sequence again at every step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import nnsight
import torch
from torch import Tensor, nn
from transformers import AttentionInterface
from transformers.models.llama.modeling_llama import eager_attention_forward

from driftscope.chain.baseline import PrefixPass
from driftscope.chain.chain import Chain, Text, chain_inputs
from driftscope.chain.measure import StepMeasure
from driftscope.chain.observe import Measure, observe
from driftscope.chain.prefix import prefix_pass
from driftscope.drafter import Drafter
from tests.closeness import assert_same

DEPTH, LENGTH = 4, 13
SUMS = 10
"""Sums in a row within one layer: four norms, and the products of q, attention, its output and the MLP."""
Sites = dict[str, Tensor]
Run = Callable[[Tensor, Tensor, Tensor], Sites]
"""(states [row, hidden], token ids [row], positions [row]) -> site -> its values at the last row."""


def made_text(drafter: Drafter, seed: int = 1) -> Text:
    """Random tokens and last hidden states; all of it is continuation."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, drafter.config.vocab_size, (LENGTH,), generator=generator)
    return Text(ids, 1, torch.randn(LENGTH, drafter.config.target_hidden_size, generator=generator))


def chained(drafter: Drafter, text: Text) -> list[Sites]:
    """Every site of every step of the chains of all anchors, fed with the text."""
    passed = prefix_pass(drafter, text, drafter.windows, sinks=(0,), horizon=DEPTH)
    steps = observed(
        drafter, text, passed, lambda step, rows, values: {n: value.clone() for n, value in values.items()}
    )
    carry, sums = steps[0]["carry"], SUMS * drafter.config.num_layers
    assert_same(passed.baseline.carry[: len(carry)], carry, "carry of step 1", terms=2 * carry.shape[-1], sums=sums)
    return steps


def measured(drafter: Drafter, text: Text) -> list[Sites]:
    """What StepMeasure makes of the same chains."""
    passed = prefix_pass(drafter, text, drafter.windows, sinks=(0,), horizon=DEPTH)
    return observed(drafter, text, passed, StepMeasure(drafter, text, passed.baseline, (0,), text.anchors(DEPTH)))


def observed(drafter: Drafter, text: Text, passed: PrefixPass, measure: Measure) -> list[Sites]:
    anchors = text.anchors(DEPTH)
    inputs = chain_inputs(text, passed.prefix, drafter.windows, anchors=anchors, depth=DEPTH, feed="text")
    return observe(nnsight.NNsight(Chain(drafter)), inputs, measure, sites=drafter.step_sites)


def compare(drafter: Drafter, run: Run, first: Callable[[int, int], int] = lambda anchor, step: 0) -> set[str]:
    """Assert that chains equal a sequential loop at every site that `run` gives; returns those.

    first: the first row that step `step` of an anchor sees.
    """
    text = made_text(drafter)
    steps = chained(drafter, text)
    compared: set[str] = set()
    for index, anchor in enumerate(text.anchors(DEPTH).tolist()):
        states, tokens = text.features[: anchor + 1], text.token_ids[1 : anchor + 2]
        for step in range(1, DEPTH + 1):
            start = first(anchor, step)
            wanted = run(states[start:], tokens[start:], torch.arange(start, len(states)))
            for name, value in wanted.items():
                seen = steps[step - 1][name][index]
                if name.endswith(".attention"):
                    seen = torch.cat([seen[:, :anchor], seen[:, -step:]], -1)
                    assert not seen[:, :start].any()
                    seen = seen[:, start:]
                assert_same(seen, value, f"{name} of anchor {anchor} at step {step}")
                compared.add(name)
            states = torch.cat([states, wanted["carry"][None]])
            tokens = torch.cat([tokens, text.token_ids[anchor + step + 1].view(1)])
    return compared


def watch(layer: nn.Module, seen: Sites) -> None:
    """Record the sites of a decoder layer of transformers as it runs."""

    def last(value: Any) -> Tensor:
        return (value[0] if isinstance(value, tuple) else value)[0, -1]

    attention: Any = layer.self_attn
    attention.register_forward_hook(lambda _, args, out: seen.update({"layers.0.attn_update": last(out)}))
    attention.register_forward_hook(lambda _, args, out: seen.update({"layers.0.attention": out[1][0, :, -1]}))
    norm: Any = layer.post_attention_layernorm
    norm.register_forward_pre_hook(lambda _, args: seen.update({"layers.0.after_attn": last(args)}))
    mlp: Any = layer.mlp
    mlp.register_forward_hook(lambda _, args, out: seen.update({"layers.0.mlp_update": last(out)}))


def recorded(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor, *, seen: Sites, **more: Any
) -> Any:
    """Eager attention that keeps what it was given for the last row."""
    for name, part in (("q", query), ("k", key), ("v", value)):
        seen[f"layers.0.{name}"] = part[0, :, -1]
    return eager_attention_forward(module, query, key, value, mask, **more)


AttentionInterface.register("recorded", recorded)
