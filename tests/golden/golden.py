"""What the make_*.py scripts share: random weights and inputs, and the layout of a golden file. Needs torch alone.

A golden file is one safetensors. Its tensors:
- `checkpoint.*`: the peer's own saved tensors, in bfloat16; the peer ran with these values in float32.
- `token_ids` [T] and `features` [T, width], the latter in bfloat16 likewise.
- `logits` and `carry` [anchor, step, ...] in float32, for the anchors 0..T-1-STEPS; step k of anchor t embeds token
  t+k. Of a drafter that carries nothing, other sites stand in the place of `carry`, under their names.
- `head` and `embedding`, the target's, where the drafter has none of its own.

Its metadata: `precision`, what the peer's numbers are good for: the `dtype` that it ran in, the `terms` of its longest sum
and the `sums` that a value goes through in one step, of which tests/closeness.py makes a tolerance; `peer`; `config`, the
peer's own config.json; `overrides`, the switches that this config cannot tell; `steps`, how many of the steps the peer runs
as an engine would.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

HERE = Path(__file__).parent
STEPS = 4
TOKENS = 14
HIDDEN = 16
INTERMEDIATE = 12
HEADS, KV_HEADS, HEAD_DIM = 2, 1, 8
VOCAB, DRAFT_VOCAB = 28, 10
SUMS = 10
"""Sums in a row within one layer: four norms, and the products of q, attention, its output and the MLP."""


def randomise(module: torch.nn.Module, seed: int, scale: float = 0.9) -> None:
    """Fill parameters and vocabulary maps: matrices of gain `scale`, norms around one; all values exact in bfloat16."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, slot in sorted(module.state_dict().items()):
            if name.endswith(("d2t", "t2d")):
                continue
            noise = torch.randn(slot.shape, generator=generator)
            if name.endswith("bias"):
                value = 0.3 * noise
            else:
                value = 1 + 0.2 * noise if slot.ndim == 1 else noise * (scale / slot.shape[-1] ** 0.5)
            slot.copy_(value.bfloat16().float())
        maps = dict(module.named_buffers())
        if maps.get("d2t") is not None and len(maps["d2t"]) < len(maps["t2d"]):
            chosen = torch.randperm(len(maps["t2d"]), generator=generator)[: len(maps["d2t"])].sort().values
            maps["d2t"].copy_(chosen - torch.arange(len(chosen)))
            maps["t2d"].zero_()[chosen] = 1


def inputs(width: int, seed: int) -> tuple[Tensor, Tensor]:
    """token_ids [T] and features [T, width]; the parts of a feature differ in size, as those of a real target do."""
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(TOKENS, width, generator=generator) * torch.linspace(0.5, 2, width)
    return torch.randint(0, VOCAB, (TOKENS,), generator=generator), features.bfloat16().float()


def precision(checkpoint: Mapping[str, Tensor]) -> dict[str, Any]:
    """What float32 leaves of a peer's numbers: see the top of this file."""
    terms = max(tensor.shape[-1] for tensor in checkpoint.values() if tensor.ndim == 2)
    layers = {found[1] for name in checkpoint if (found := re.search(r"\blayers\.(\d+)\.", name))}
    return {"dtype": "float32", "terms": terms, "sums": SUMS * max(1, len(layers))}


def write(
    name: str,
    *,
    peer: str,
    checkpoint: Mapping[str, Tensor],
    config: Mapping[str, Any],
    token_ids: Tensor,
    features: Tensor,
    logits: Tensor,
    carry: Tensor | None = None,
    sites: Mapping[str, Tensor] | None = None,
    head: Tensor | None = None,
    embedding: Tensor | None = None,
    overrides: Mapping[str, Any] | None = None,
    steps: int = STEPS,
) -> None:
    """Write NAME.safetensors. logits and carry: [row, step, ...], cut to the anchors with STEPS tokens ahead."""

    def small(tensor: Tensor) -> Tensor:
        if not tensor.is_floating_point():
            return tensor.contiguous()
        assert torch.equal(tensor.bfloat16().float(), tensor.float())
        return tensor.bfloat16().contiguous()

    tensors = {f"checkpoint.{key}": small(value) for key, value in checkpoint.items()}
    tensors |= {"token_ids": token_ids.short(), "features": small(features)}
    for part, value in (("head", head), ("embedding", embedding)):
        if value is not None:
            tensors[part] = small(value)
    anchors = TOKENS - STEPS
    told = {"logits": logits, **({} if carry is None else {"carry": carry}), **(sites or {})}
    told = {name: value[:anchors].contiguous() for name, value in told.items()}
    assert all(bool(torch.isfinite(value).all()) for value in told.values())
    tensors |= told
    metadata = {
        "peer": peer,
        "precision": precision(checkpoint),
        "config": config,
        "overrides": dict(overrides or {}),
        "steps": steps,
    }
    path = HERE / f"{name}.safetensors"
    save_file(tensors, path, {key: json.dumps(value) for key, value in metadata.items()})
    state = told.get("carry", told["logits"])
    print(f"{path.name}: {path.stat().st_size / 1024:.1f} kB, RMS by step {state.square().mean((0, 2)).sqrt()}")
