"""Drafters with random weights in the shape of the example pair's, over made-up states: cost does not depend on the values."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

import torch

from driftscope.captures.capture import Capture
from driftscope.chain.pair import Pair, as_dtype
from driftscope.chain.prompt_chains import Settings, Subject
from driftscope.checkpoints.config import DrafterConfig
from driftscope.checkpoints.sizes import expected_shapes
from driftscope.drafter import build_drafter


@dataclass(frozen=True)
class Size:
    """One point."""

    text: int = 1024
    anchors: int = 64
    depth: int = 8
    heads: int = 9


@dataclass(frozen=True)
class Place:
    """Where it runs, and in which numbers."""

    threads: int
    device: str = "cpu"
    dtype: str = "float32"


def subject(size: Size, place: Place) -> Subject:
    """A drafter of that many heads of 64 (a third of them for keys), and one text."""
    config, weights = made_up_drafter(size.heads, place.device)
    generator = torch.Generator().manual_seed(0)
    width = config.hidden_size
    vocabulary = torch.zeros(config.vocab_size, width)
    drafter = build_drafter(
        config,
        weights,
        target_embedding=vocabulary,
        target_head=vocabulary,
        device=place.device,
        dtype=as_dtype(place.dtype),
    )
    rows = size.text
    record = Capture(
        prompt_id="made-up",
        category="",
        token_ids=torch.randint(0, config.vocab_size, (rows,), generator=generator),
        prompt_length=rows - size.anchors - size.depth,
        final=torch.randn(rows, width, generator=generator),
        boundaries={b: torch.randn(rows, width, generator=generator) for b in config.aux_boundaries or ()},
        rms=torch.ones(4, rows),
        near_tie=torch.zeros(rows, dtype=torch.bool),
        loop=torch.zeros(rows, dtype=torch.bool),
        stopped=False,
    )
    pair = Pair(None, config, SimpleNamespace(num_layers=3), drafter)  # type: ignore[arg-type]
    return Subject(pair, record, Settings(depth=size.depth, horizon=size.depth))


def made_up_drafter(heads: int, device: str = "cpu") -> tuple[DrafterConfig, dict[str, torch.Tensor]]:
    """An EAGLE 3.1 drafter with random weights, made where it runs."""
    config = DrafterConfig(
        layer_form="eagle3",
        hidden_size=64 * heads,
        target_hidden_size=64 * heads,
        intermediate_size=1536 * heads // 9,
        num_heads=heads,
        num_kv_heads=heads // 3,
        head_dim=64,
        vocab_size=8192,
        draft_vocab_size=4096,
        aux_boundaries=(1, 2, 3),
        fc_norm=True,
        carry="post",
    )
    generator = torch.Generator(device).manual_seed(0)
    weights = {
        name: torch.randn(shape, generator=generator, device=device) * (shape[-1] ** -0.5 if len(shape) > 1 else 0.1)
        + (len(shape) == 1)
        for name, shape in expected_shapes(config).items()
    }
    weights["d2t"] = torch.arange(config.draft_vocab_size)
    return config, weights
