"""Drafters in training: modules whose parameters are those of a published layout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from driftscope.checkpoints import DrafterConfig
from driftscope.checkpoints.families.registry import FAMILIES
from driftscope.integrations.training import TrainingCapture, training_capture
from driftscope.target.model import Target
from tests import tiny, tiny_pair

PROMPTS = 3


def stored(
    layout: str = "specforge", config: DrafterConfig = tiny_pair.CONFIG
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """State dict and config as the layout has them, without the embedding, which is the target's."""
    family = next(family for family in FAMILIES if layout == family.NAME)
    tensors = tiny.weights(config)
    del tensors["embed_tokens.weight"]
    tensors["t2d"] = torch.zeros(config.vocab_size, dtype=torch.bool)
    tensors["t2d"][tensors["d2t"] + torch.arange(config.draft_vocab_size)] = True
    return {family.stored_name(name): tensor for name, tensor in tensors.items()}, family.config_json(config)


class LiveDrafter(nn.Module):
    """Learns something, with dropout and batch statistics, so that every trace of a measurement would show."""

    def __init__(self, state: dict[str, Tensor], config: Any) -> None:
        super().__init__()
        self.config = config
        self.dropout = nn.Dropout(0.5)
        self.statistics = nn.BatchNorm1d(4)
        for name, tensor in state.items():
            *path, last = name.split(".")
            owner: nn.Module = self
            for part in path:
                if not hasattr(owner, part):
                    owner.add_module(part, nn.Module())
                owner = getattr(owner, part)
            if tensor.is_floating_point():
                owner.register_parameter(last, nn.Parameter(tensor.clone()))
            else:
                owner.register_buffer(last, tensor)

    def forward(self, x: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        used = [p for p in self.parameters() if p.ndim == 2]
        noisy = self.statistics(self.dropout(x)).mean()
        return {"loss": torch.stack([p.square().mean() for p in used]).sum() * noisy.exp()}


def live_drafter(layout: str = "specforge", config: DrafterConfig = tiny_pair.CONFIG) -> LiveDrafter:
    return LiveDrafter(*stored(layout, config))


def tiny_capture(target: Target, folder: Path, drafter: Any = None, **options: Any) -> TrainingCapture:
    texts = [" ".join(f"w{(7 * n + 3 * i) % 60}" for i in range(9 + n)) for n in range(PROMPTS)]
    tiny_pair.write_prompts(folder / "prompts.jsonl", *texts)
    options = {"max_new_tokens": 24, "depth": 4, "sinks": (0,), **options}
    return training_capture(
        target, drafter or live_drafter(), prompts=folder / "prompts.jsonl", cache_dir=folder / "cache", **options
    )
