"""Attention of a chain: the query of step k sees the prefix rows before its anchor and the chain's own rows 1..k."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from driftscope.drafter.arithmetic import matmul
from driftscope.drafter.layer import AttentionLayer


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
    """Keys and values of one layer made from real target features, one entry per row; of one text or of several alike."""

    keys: Float[Tensor, "*prompt kv_head row dim"]
    values: Float[Tensor, "*prompt kv_head row value_dim"]

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
    anchors: Int[Tensor, "*prompt anchor"]
    windows: list[Window]
    """Per layer."""
    own_keys: list[list[Float[Tensor, "*prompt anchor kv_head dim"]]] = field(default_factory=list)
    own_values: list[list[Float[Tensor, "*prompt anchor kv_head value_dim"]]] = field(default_factory=list)
    dropped: int = 0
    """Own rows that are no longer there: a query stands so much further than their number says."""

    def __post_init__(self) -> None:
        if not self.own_keys:
            self.own_keys, self.own_values = [[] for _ in self.prefix], [[] for _ in self.prefix]

    def after(self, steps: int, dropped: int = 0) -> ChainMemory:
        """A memory of its own that holds the first `steps` own rows, as if `dropped` others had followed them."""
        keys, values = ([layer[:steps] for layer in own] for own in (self.own_keys, self.own_values))
        return replace(self, own_keys=keys, own_values=values, dropped=dropped)


def probabilities(
    scores: Float[Tensor, "*batch head query key"], sink_logits: Float[Tensor, " head"] | None
) -> Float[Tensor, "*batch head query key"]:
    """Softmax over the keys; learned sink logits take part in it and are cut off again."""
    if sink_logits is None:
        return scores.softmax(-1)
    column = sink_logits.float()[:, None, None].expand(*scores.shape[:-1], 1)
    return torch.cat([scores, column], -1).softmax(-1)[..., :-1]


def chain_attention(
    query: Float[Tensor, "row head dim"],
    key: Float[Tensor, "row kv_head dim"],
    value: Float[Tensor, "row kv_head value_dim"],
    memory: ChainMemory,
    layer: AttentionLayer,
) -> Float[Tensor, "row head value_dim"]:
    """Attention of one step for all anchors at once, of one prompt or of several; rows are anchors, prompt by prompt.

    The probabilities, [*prompt, anchor, head, prefix row then own step 1..k], pass through the layer's site, so that what a hook
    writes there is what the values are weighted with. With learned sink logits they sum to less than 1.
    """
    index = layer.index
    prefix, window, places = memory.prefix[index], memory.windows[index], memory.anchors
    anchors, heads, value_dim = places.shape[-1], query.shape[1], value.shape[-1]
    kv_heads, rows = prefix.keys.shape[-3:-1]
    groups = heads // kv_heads
    memory.own_keys[index].append(key.unflatten(0, places.shape))
    memory.own_values[index].append(value.unflatten(0, places.shape))
    own_keys = torch.stack(memory.own_keys[index], -2)  # [*prompt, anchor, kv_head, step, dim]
    own_values = torch.stack(memory.own_values[index], -2)
    steps = own_keys.shape[-2]

    # One product per key/value head serves all anchors and the query heads that share it.
    grouped = query.view(*places.shape, kv_heads, groups, query.shape[-1])
    folded = grouped.movedim(-4, -2).flatten(-3, -2)  # [*prompt, kv_head, group * anchor, dim]
    far = matmul(folded, prefix.keys.mT).unflatten(-2, (groups, anchors))
    near = matmul(grouped, own_keys.mT).movedim(-4, -2)  # [*prompt, kv_head, group, anchor, step]

    key_rows = torch.arange(rows, device=query.device)
    seen = key_rows < places[..., None]
    if window.fresh:
        seen = torch.zeros_like(seen)
    scores = torch.cat([far, near], -1).float().mul_(layer.scaling)
    if window.size is not None:
        query_rows = (places + memory.dropped + steps - 1).flatten()
        seen = seen & window.visible(query_rows, key_rows).view_as(seen)
        own_rows = (places[..., None] + torch.arange(steps, device=query.device)).flatten(0, -2)
        own_seen = window.visible(query_rows, own_rows).view(*places.shape, steps)
        scores[..., rows:].masked_fill_(~own_seen[..., None, None, :, :], float("-inf"))
    scores[..., :rows].masked_fill_(~seen[..., None, None, :, :], float("-inf"))
    weights = probabilities(scores.flatten(-4, -3), layer.sink_logits)  # [*prompt, head, anchor, key]
    weights = layer.attention(weights.transpose(-3, -2)).to(value.dtype)

    weights = weights.transpose(-3, -2).unflatten(-3, (kv_heads, groups))
    mixed = matmul(weights[..., :rows].flatten(-3, -2), prefix.values).unflatten(-2, (groups, anchors)).movedim(-2, -4)
    own = matmul(weights[..., rows:].movedim(-2, -4), own_values)  # [*prompt, anchor, kv_head, group, value_dim]
    return (mixed + own).reshape(-1, heads, value_dim)


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


def causal_outputs(
    query: Float[Tensor, "prompt head row dim"],
    prefix: Prefix,
    window: Window,
    *,
    scaling: float,
    sink_logits: Float[Tensor, " head"] | None = None,
) -> Float[Tensor, "prompt head row value_dim"]:
    """Attention of all prefix rows of several prompts over all rows up to themselves, where nobody asks for the probabilities."""
    key, value = prefix.keys, prefix.values
    places = torch.arange(key.shape[-2], device=query.device)
    seen = (places <= places[:, None]) & window.visible(places, places)
    if window.fresh:
        seen = places == places[:, None]
    if sink_logits is None:
        return F.scaled_dot_product_attention(query, key, value, seen, scale=scaling, enable_gqa=True)
    groups = query.shape[1] // key.shape[1]
    scores = (query @ key.repeat_interleave(groups, 1).mT).float() * scaling
    weights = probabilities(scores.masked_fill(~seen, float("-inf")), sink_logits).to(value.dtype)
    return weights @ value.repeat_interleave(groups, 1)
