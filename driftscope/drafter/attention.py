"""Attention of a chain: the query of step k sees the prefix rows before its anchor and the chain's own rows 1..k."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from driftscope.drafter.arithmetic import matmul


@dataclass(frozen=True)
class Window:
    """Which keys a query may see beside causality; the attention policy of a layer at inference."""

    size: int | None = None
    """Keys at rows > r - size are visible to row r; None is full attention."""
    keep: int = 0
    """The first `keep` rows stay visible behind the window (the sink, or a whole system prompt)."""
    fresh: bool = False
    """The draft KV starts empty every round: a chain sees its own rows only, a row of the prefix pass only itself."""

    def visible(self, query_rows: Int[Tensor, " q"], key_rows: Int[Tensor, "..."]) -> Bool[Tensor, "q key"]:
        """key_rows is [key], or [q, key] where every query has keys of its own."""
        rows = query_rows[:, None]
        if self.size is None:
            return torch.ones_like(rows + key_rows, dtype=torch.bool)
        return (key_rows > rows - self.size) | (key_rows < self.keep)


@dataclass
class Prefix:
    """Keys and values of one layer made from real target features, one entry per row."""

    keys: Float[Tensor, "kv_head row dim"]
    values: Float[Tensor, "kv_head row value_dim"]

    @classmethod
    def like(
        cls, key: Float[Tensor, "row kv_head dim"], value: Float[Tensor, "row kv_head value_dim"], rows: int
    ) -> Prefix:
        """Room for `rows` rows of such keys and values."""
        return cls(*(part.new_empty((part.shape[1], rows, part.shape[2])) for part in (key, value)))


@dataclass
class ChainMemory:
    """What a set of chains attends to. Every step appends its own key and value, the first included."""

    prefix: list[Prefix]
    """Per layer."""
    anchors: Int[Tensor, " anchor"]
    windows: list[Window]
    """Per layer."""
    own_keys: list[list[Float[Tensor, "anchor kv_head dim"]]] = field(default_factory=list)
    own_values: list[list[Float[Tensor, "anchor kv_head value_dim"]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.own_keys = [[] for _ in self.prefix]
        self.own_values = [[] for _ in self.prefix]


def probabilities(
    scores: Float[Tensor, "*batch head query key"], sink_logits: Float[Tensor, " head"] | None
) -> Float[Tensor, "*batch head query key"]:
    """Softmax over the keys; learned sink logits take part in it and are cut off again."""
    if sink_logits is None:
        return scores.softmax(-1)
    column = sink_logits.float()[:, None, None].expand(*scores.shape[:-1], 1)
    return torch.cat([scores, column], -1).softmax(-1)[..., :-1]


def chain_attention(
    query: Float[Tensor, "anchor head dim"],
    key: Float[Tensor, "anchor kv_head dim"],
    value: Float[Tensor, "anchor kv_head value_dim"],
    memory: ChainMemory,
    layer: int,
    *,
    scaling: float,
    site: Callable[[Tensor], Tensor],
    sink_logits: Float[Tensor, " head"] | None = None,
) -> Float[Tensor, "anchor head value_dim"]:
    """Attention of one step for all anchors at once.

    The probabilities, [anchor, head, prefix row then own step 1..k], pass through `site`, so that what a hook writes there
    is what the values are weighted with. With learned `sink_logits` they sum to less than 1.
    """
    anchors, heads, dim = query.shape
    prefix, window = memory.prefix[layer], memory.windows[layer]
    kv_heads, rows, _ = prefix.keys.shape
    groups = heads // kv_heads
    memory.own_keys[layer].append(key)
    memory.own_values[layer].append(value)
    own_keys = torch.stack(memory.own_keys[layer], 2)  # [anchor, kv_head, step, dim]
    own_values = torch.stack(memory.own_values[layer], 2)
    steps = own_keys.shape[2]

    # One product per key/value head serves all anchors and the query heads that share it.
    grouped = query.view(anchors, kv_heads, groups, dim)
    folded = grouped.permute(1, 2, 0, 3).reshape(kv_heads, groups * anchors, dim)
    far = matmul(folded, prefix.keys.mT).view(kv_heads, groups, anchors, rows)
    near = matmul(grouped, own_keys.mT).permute(1, 2, 0, 3)  # [kv_head, group, anchor, step]

    key_rows = torch.arange(rows, device=query.device)
    query_rows = memory.anchors + steps - 1
    seen = (key_rows < memory.anchors[:, None]) & window.visible(query_rows, key_rows)
    if window.fresh:
        seen = torch.zeros_like(seen)
    scores = torch.cat([far, near], -1).float().mul_(scaling)
    scores[..., :rows].masked_fill_(~seen, float("-inf"))
    if window.size is not None:
        own_rows = memory.anchors[:, None] + torch.arange(steps, device=query.device)
        scores[..., rows:].masked_fill_(~window.visible(query_rows, own_rows), float("-inf"))
    weights = probabilities(scores.view(heads, anchors, rows + steps), sink_logits)
    weights = site(weights.transpose(0, 1)).to(value.dtype)  # [anchor, head, key]

    weights = weights.transpose(0, 1).reshape(kv_heads, groups * anchors, rows + steps)
    mixed = (
        matmul(weights[..., :rows], prefix.values).view(kv_heads, groups, anchors, value.shape[-1]).permute(2, 0, 1, 3)
    )
    own = weights[..., rows:].view(kv_heads, groups, anchors, steps).permute(2, 0, 1, 3)
    return (mixed + matmul(own, own_values)).flatten(1, 2)


def causal_attention(
    query: Float[Tensor, "row head dim"],
    prefix: Prefix,
    rows: slice,
    window: Window,
    *,
    scaling: float,
    sink_logits: Float[Tensor, " head"] | None = None,
) -> tuple[Float[Tensor, "row head value_dim"], Float[Tensor, "row head key"]]:
    """Attention of the prefix rows `rows` over all rows up to themselves: outputs and float32 probabilities."""
    count, heads, dim = query.shape
    kv_heads = prefix.keys.shape[0]
    groups = heads // kv_heads
    end = rows.stop
    folded = query.view(count, kv_heads, groups, dim).permute(1, 2, 0, 3).reshape(kv_heads, groups * count, dim)
    scores = matmul(folded, prefix.keys[:, :end].mT).float().mul_(scaling).view(heads, count, end)
    query_rows = torch.arange(rows.start, end, device=query.device)
    key_rows = torch.arange(end, device=query.device)
    seen = (key_rows <= query_rows[:, None]) & window.visible(query_rows, key_rows)
    if window.fresh:
        seen = key_rows == query_rows[:, None]
    scores.masked_fill_(~seen, float("-inf"))
    weights = probabilities(scores, sink_logits)
    folded_weights = weights.to(query.dtype).view(kv_heads, groups * count, end)
    mixed = matmul(folded_weights, prefix.values[:, :end]).view(kv_heads, groups, count, prefix.values.shape[-1])
    return mixed.permute(2, 0, 1, 3).flatten(1, 2), weights.transpose(0, 1)
