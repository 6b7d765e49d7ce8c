"""What the weights of one step say: mass per bucket, keys per bucket, entropy, the heaviest keys."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

Runs = list[tuple[int, int, int]]
"""(region, first row, row after the last) of every stretch of rows that one region holds."""


def region_runs(columns: Float[Tensor, "row region"]) -> Runs:
    """The stretches, from the indicator of each region."""
    regions, counts = columns.argmax(-1).unique_consecutive(return_counts=True)
    ends = counts.cumsum(0)
    return list(zip(regions.tolist(), (ends - counts).tolist(), ends.tolist(), strict=True))


def region_sums(weights: Float[Tensor, "anchor head row"], runs: Runs, regions: int = 3) -> list[Tensor]:
    """Mass of every region. Sums over stretches, which take a fraction of the time of a product with the indicators."""
    rows = weights.shape[-1]
    sums = [weights.new_zeros(weights.shape[:-1]) for _ in range(regions)]
    for region, start, stop in runs:
        if start < rows:
            sums[region] = sums[region] + weights[..., start : min(stop, rows)].sum(-1)
    return sums


def attention_entropy(weights: Float[Tensor, "anchor head key"]) -> Float[Tensor, "anchor head"]:
    """Nats; 0 log 0 = 0."""
    return -torch.linalg.vecdot(weights, weights.clamp_min(torch.finfo(weights.dtype).tiny).log_())


def bucket_masses(
    weights: Float[Tensor, "anchor head key"],
    step: int,
    on_sink: Bool[Tensor, "anchor step"] | None,
    runs: Runs,
) -> Float[Tensor, "anchor head bucket"]:
    """Mass per bucket. Keys are the prefix rows in view and then the chain's own rows t .. t+step-1; precedence is sink,
    current, drafted, committed, prompt. runs: stretches of sink, prompt and rest in the text; on_sink: own_sinks()."""
    rows = weights.shape[-1] - step
    sink, prompt, committed = region_sums(weights[..., :rows], runs)
    near = weights[..., rows:]
    if on_sink is not None:
        sink = sink + (near * on_sink[:, None]).sum(-1)
        near = near * ~on_sink[:, None]
    current = near[..., -1]
    if step > 1:
        committed = committed + near[..., 0]
    drafted = near[..., 1:-1].sum(-1) if step > 2 else torch.zeros_like(current)
    virtual = (1 - weights.sum(-1)).clamp(min=0)
    return torch.stack([sink, prompt, committed, drafted, current, virtual], -1)


def own_sinks(step: int, anchors: Tensor, columns: Tensor) -> Bool[Tensor, "anchor step"]:
    """Whether each of the chain's own rows stands at a sink position."""
    return columns[anchors[:, None] + torch.arange(step, device=anchors.device), 0] > 0


def rows_before(columns: Float[Tensor, "row region"]) -> Int[Tensor, "row_and_end region"]:
    """How many rows of each region come before every row."""
    # Whole numbers: CUDA has no deterministic sum of floats along a dimension.
    return torch.nn.functional.pad(columns.long().cumsum(0), (0, 0, 1, 0))


def bucket_keys(
    step: int, anchors: Int[Tensor, " anchor"], on_sink: Bool[Tensor, "anchor step"] | None, counts: Tensor
) -> Int[Tensor, "anchor bucket"]:
    """Number of keys that each bucket holds for a query with full attention. counts: rows_before()."""
    sink, prompt, committed = counts[anchors].unbind(-1)
    none = torch.zeros_like(sink)
    if on_sink is None:
        own = [none + (step > 1), none + max(step - 2, 0), none + 1]
    else:
        sink, off = sink + on_sink.sum(-1), (~on_sink).long()
        own = [off[:, 0] if step > 1 else none, off[:, 1:-1].sum(-1), off[:, -1]]
    return torch.stack([sink, prompt, committed + own[0], own[1], own[2], none], -1)


def heavy_keys(
    weights: Sequence[Float[Tensor, "anchor head key"]], step: int, anchors: Int[Tensor, " anchor"], count: int
) -> dict[str, Tensor]:
    """The `count` keys with the most attention, mean over layers and heads, heaviest first, each [anchor, count].

    `heavy_position` is the row's position and `heavy_own` whether it is one of the chain's own. What a query does not see
    has mass 0, and so has the rest where there are fewer keys.
    """
    mean = torch.stack([w.mean(1) for w in weights]).mean(0)
    rows = mean.shape[-1] - step
    mass, index = mean.topk(min(count, mean.shape[-1]), -1)
    own = index >= rows
    found = {
        "heavy_mass": mass,
        "heavy_position": torch.where(own, anchors[:, None] + index - rows, index).int(),
        "heavy_own": own,
    }
    short = count - mass.shape[-1]
    return {name: torch.nn.functional.pad(value, (0, short)) for name, value in found.items()} if short else found
