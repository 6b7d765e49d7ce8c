"""Costs predicted from an accelerator's data sheet: a pass takes as long as reading its weights and keys, or computing its
products, whichever is longer. A bound that no kernel beats: launches, communication and everything else that takes time are left
out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from driftscope.errors import DriftscopeError
from driftscope.planning.costs import BatchCost, CostModel


@dataclass(frozen=True)
class Accelerator:
    """One device, as its data sheet has it."""

    bandwidth: float
    """Bytes a second of its memory."""
    flops: float
    """Dense bfloat16 operations a second."""


ACCELERATORS = {
    "A100": Accelerator(2.039e12, 312e12),
    "H100": Accelerator(3.35e12, 989e12),
    "H200": Accelerator(4.8e12, 989e12),
    "L4": Accelerator(0.3e12, 121e12),
    "L40S": Accelerator(0.864e12, 362e12),
    "MI300X": Accelerator(5.3e12, 1307e12),
}
"""A100 and H100 are the SXM ones, the A100 with 80 GB."""
BYTES = 2
"""Of a weight and of a key or value: bfloat16."""


@dataclass(frozen=True)
class ModelSize:
    """What a pass over a model reads and computes."""

    weights: float
    """Weights that products read: without the input embedding, with the head."""
    keys: float
    """Numbers that the cache holds per token: keys and values of all layers."""


def roofline(
    name: str,
    target: ModelSize,
    drafter: ModelSize,
    batches: Sequence[int],
    rows: Sequence[int],
    context: int,
    one_pass: bool,
) -> CostModel:
    """rows: of the target's forward, a request. Raises DriftscopeError for an accelerator that is not listed."""
    known = {part.lower(): part for part in ACCELERATORS}
    if name.lower() not in known:
        raise DriftscopeError(f"--roofline {name} is not known; choose from {', '.join(ACCELERATORS)}, or give --costs")
    device = ACCELERATORS[known[name.lower()]]

    def seconds(size: ModelSize, batch: int, count: int) -> float:
        read = BYTES * (size.weights + batch * context * size.keys)
        # Two operations a weight and row; attention does one product with keys and one with values, shared heads read once.
        computed = 2 * batch * count * (size.weights + context * size.keys)
        return max(read / device.bandwidth, computed / device.flops)

    costs = tuple(
        BatchCost(batch, seconds(drafter, batch, 1), {count: seconds(target, batch, count) for count in rows})
        for batch in batches
    )
    told = (
        f"predicted: roofline of one {known[name.lower()]} ({device.bandwidth / 1e12:g} TB/s, {device.flops / 1e12:g} TFLOP/s in"
        f" bfloat16), {context} tokens of context; a bound without launches or communication"
    )
    return CostModel("predicted", told, costs, one_pass, {"accelerator": known[name.lower()], "context": context})


def target_size(config: Any) -> ModelSize:
    """Of a transformers causal language model, from its config alone; of a mixture of experts all experts count as read."""
    import torch
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    text = config.get_text_config(decoder=True)
    total = sum(weight.numel() for weight in model.parameters())
    embedding, head = model.get_input_embeddings().weight, model.get_output_embeddings().weight
    # A tied embedding is counted once, and read as the head.
    weights = total if embedding is head else total - embedding.numel()
    heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
    dim = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    latent = getattr(text, "kv_lora_rank", None)
    per_layer = latent + text.qk_rope_head_dim if latent else 2 * heads * dim
    return ModelSize(float(weights), float(text.num_hidden_layers * per_layer))


def drafter_size(config: Any) -> ModelSize:
    """Of a drafter, from its switches alone."""
    import torch

    from driftscope.drafter.build import drafter_class

    with torch.device("meta"):
        drafter = drafter_class(config)(config)
    weights = sum(weight.numel() for name, weight in drafter.named_parameters() if "embed_tokens" not in name)
    latent = config.kv_lora_rank
    per_layer = (
        latent + (config.qk_rope_head_dim or 0)
        if latent
        else config.num_kv_heads * (config.head_dim + (config.v_head_dim or config.head_dim))
    )
    return ModelSize(float(weights), float(config.num_layers * per_layer))


def usual_context(lengths: Sequence[int]) -> int:
    """Mean length of the texts, rounded up; what passes see on average is no more."""
    return math.ceil(sum(lengths) / len(lengths)) if lengths else 256
