"""The self-test of the hooks: run once when a pair is loaded, on a short made-up text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from driftscope.chain.chain import Text, chain_inputs
from driftscope.chain.observe import HookError, observe
from driftscope.chain.prefix import prefix_pass
from driftscope.drafter.attention import Window
from driftscope.drafter.model import Drafter


class PassesNothingError(HookError):
    """A site whose value makes no difference: the hook works, and what stands behind it passes nothing on."""


DEPTH = 2
LENGTH = 16
PROMPT = 8


@dataclass(frozen=True)
class _Turn:
    """Turns a site's value around along its last dimension, which keeps rows of probabilities summing to 1."""

    site: str

    def acts(self, step: int) -> bool:
        return step == 1

    def __call__(self, value: Tensor, step: int, rows: slice) -> Tensor:
        return value.flip(-1)


def made_up_text(drafter: Drafter) -> Text:
    """A text of random tokens and features, the same every time."""
    config = drafter.config
    generator = torch.Generator().manual_seed(0)
    width = config.target_hidden_size * (config.num_aux if config.feature_source == "aux" else 1)
    features = torch.randn(LENGTH, width, generator=generator)
    token_ids = torch.randint(0, config.known_tokens or config.vocab_size, (LENGTH,), generator=generator)
    return Text(token_ids.to(drafter.device), PROMPT, features.to(drafter.device, drafter.dtype))


def check_hooks(model: Any) -> None:
    """Raise HookError unless, on a short text, every site fires once a step with one row per anchor, attention rows sum to
    1 (less with learned sink logits), and overwriting any site at step 1 changes the logits."""
    drafter: Drafter = model.drafter._module
    text = made_up_text(drafter)
    windows = [Window()] * drafter.config.num_layers
    passed = prefix_pass(drafter, text, windows, sinks=(), horizon=DEPTH)
    anchors = text.anchors(DEPTH)
    inputs = chain_inputs(text, passed.prefix, windows, anchors=anchors, depth=DEPTH, feed="text")

    def watch(step: int, rows: slice, values: dict[str, Tensor]) -> dict[str, Tensor]:
        for name, value in values.items():
            if value.shape[0] != len(anchors):
                raise HookError(f"site {name} has {value.shape[0]} rows at step {step}, expected {len(anchors)}")
            if name.endswith(".attention"):
                totals = value.float().sum(-1)
                if bool((totals > 1 + 1e-3).any()) or (not drafter.learned_sinks and bool((totals < 1 - 1e-2).any())):
                    raise HookError(f"rows of {name} sum to {totals.min():.4f}..{totals.max():.4f}, expected 1")
        return {"logits": values["logits"].float().clone()}

    clean = observe(model, inputs, watch, sites=drafter.step_sites, first_sites=drafter.first_sites)

    def logits_only(step: int, rows: slice, values: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"logits": values["logits"].float().clone()}

    for name in drafter.step_sites:
        # Without a norm on the way to the head the site may not exist; everything declared must matter.
        changed = observe(model, inputs, logits_only, sites=("logits",), interventions=[_Turn(name)])
        if all(torch.equal(one["logits"], other["logits"]) for one, other in zip(clean, changed, strict=True)):
            raise PassesNothingError(
                f"overwriting site {name} at step 1 did not change the logits of steps 1 to {DEPTH}"
            )
