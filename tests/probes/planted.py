"""Drafters whose behaviour is known, over made-up captures, without a target model.

All are of the EAGLE-1 form, whose residual is fc([embed, state]); attention and MLP add nothing to it, so that the carry is a
linear map of the embedded token or of the state. Tokens count up, x_{i+1} = x_i + 1, and are unit vectors.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from driftscope.captures.capture import Capture
from driftscope.chain.pair import Pair
from driftscope.chain.prompt_chains import Settings, Subject
from tests import tiny

WIDTH, TOKENS, LAYERS = 24, 20, 3
CONFIG = dataclasses.replace(
    tiny.CONFIG,
    layer_form="eagle1",
    feature_source="final",
    aux_boundaries=None,
    num_aux=0,
    vocab_size=TOKENS,
    draft_vocab_size=TOKENS,
    vocab_map="none",
    final_norm=False,
)
SETTINGS = Settings(depth=4, horizon=6, sinks=(0,))

UNITS = torch.eye(WIDTH)
SUCCESSOR = torch.zeros(WIDTH, WIDTH)
"""Maps the unit vector of token v to that of v + 1."""
SUCCESSOR[(torch.arange(TOKENS) + 1) % TOKENS, torch.arange(TOKENS)] = 1.0
ZERO = torch.zeros(WIDTH, WIDTH)


def planted_pair(from_embed: Tensor, from_state: Tensor, **changed: Tensor) -> Pair:
    """A pair whose residual is from_embed @ embed + from_state @ state; `changed` replaces weights, dots as `__`."""
    tensors = tiny.weights(CONFIG)
    tensors["fc.weight"] = torch.cat([from_embed, from_state], 1)
    tensors["embed_tokens.weight"] = UNITS[:TOKENS].clone()
    tensors["lm_head.weight"] = UNITS[:TOKENS].clone()
    for name in ("layers.0.self_attn.o_proj.weight", "layers.0.mlp.down_proj.weight"):
        tensors[name] = torch.zeros_like(tensors[name])
    for name, value in changed.items():
        tensors[name.replace("__", ".")] = value
    return as_pair(CONFIG, tensors)


def as_pair(config: Any, tensors: dict[str, Tensor]) -> Pair:
    head = tensors["lm_head.weight"]
    target = SimpleNamespace(num_layers=LAYERS, head=lambda hidden: hidden @ head.T)
    return Pair(None, config, target, tiny.drafter(config, tensors))  # type: ignore[arg-type]


def from_state() -> Pair:
    """Drafts the successor of the token that its state stands for; deaf to the embedding."""
    return planted_pair(ZERO, SUCCESSOR)


def from_embedding() -> Pair:
    """Drafts the successor of the token that it is given; deaf to its state. Its carry is the token's unit vector."""
    return planted_pair(torch.eye(WIDTH), ZERO, lm_head__weight=(SUCCESSOR @ UNITS)[:TOKENS, :].clone())


def capture(
    number: int = 0,
    *,
    length: int = 40,
    prompt_length: int = 12,
    final: Tensor | None = None,
    boundaries: dict[int, Tensor] | None = None,
    tokens: Tensor | None = None,
    loop: Sequence[int] = (),
) -> Capture:
    """Prompt `p{number}`. The final feature of row i is the unit vector of token i + 1 unless given."""
    if tokens is None:
        tokens = (torch.arange(length) + 3 * number) % TOKENS
    mask = torch.zeros(length, dtype=torch.bool)
    mask[list(loop)] = True
    return Capture(
        prompt_id=f"p{number}",
        category="test",
        token_ids=tokens,
        prompt_length=prompt_length,
        final=UNITS[(tokens + 1) % TOKENS] if final is None else final,
        boundaries=boundaries or {},
        rms=torch.ones(LAYERS + 1, length),
        near_tie=torch.zeros(length, dtype=torch.bool),
        loop=mask,
        stopped=False,
    )


def subject(pair: Pair, number: int = 0, settings: Settings = SETTINGS, **made: Any) -> Subject:
    return Subject(pair, capture(number, **made), settings)


def random_rows(number: int, length: int = 40, width: int = WIDTH) -> Tensor:
    return torch.randn(length, width, generator=torch.Generator().manual_seed(100 + number))
