"""Tiny random drafters and texts, in float32."""

from __future__ import annotations

import torch
from torch import Tensor

from driftscope.chain.chain import Text
from driftscope.checkpoints.config import DrafterConfig
from driftscope.drafter import Drafter, build_drafter
from driftscope.drafter.build import drafter_class

CONFIG = DrafterConfig(
    hidden_size=24,
    target_hidden_size=24,
    intermediate_size=32,
    num_heads=4,
    num_kv_heads=2,
    head_dim=8,
    vocab_size=60,
    draft_vocab_size=20,
    aux_boundaries=(1, 2, 3),
    vocab_map="offset",
)


def weights(config: DrafterConfig, seed: int = 0) -> dict[str, Tensor]:
    """Random weights, canonical names, large enough that attention is far from uniform."""
    generator = torch.Generator().manual_seed(seed)
    with torch.device("meta"):
        shapes = {name: slot.shape for name, slot in drafter_class(config)(config).state_dict().items()}
    made = {
        name: torch.randn(shape, generator=generator) * (1.5 / shape[-1] ** 0.5)
        if len(shape) > 1
        else 1 + 0.2 * torch.randn(shape, generator=generator)
        for name, shape in shapes.items()
    }
    if config.vocab_map == "offset":
        chosen = torch.randperm(config.vocab_size, generator=generator)[: config.draft_vocab_size].sort().values
        made["d2t"] = chosen - torch.arange(config.draft_vocab_size)
    return made


def drafter(config: DrafterConfig, tensors: dict[str, Tensor]) -> Drafter:
    embedding = tensors["embed_tokens.weight"]
    return build_drafter(config, tensors, target_embedding=embedding, target_head=tensors["lm_head.weight"])


def text(config: DrafterConfig, length: int = 40, prompt_length: int = 12, seed: int = 1) -> Text:
    generator = torch.Generator().manual_seed(seed)
    width = config.num_aux * config.target_hidden_size if config.feature_source == "aux" else config.target_hidden_size
    return Text(
        token_ids=torch.randint(0, config.vocab_size, (length,), generator=generator),
        prompt_length=prompt_length,
        features=torch.randn(length, width, generator=generator),
    )
