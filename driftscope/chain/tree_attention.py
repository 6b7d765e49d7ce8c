"""Attention of a level of draft trees: a node sees the prefix rows before its anchor, its ancestors and itself."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from driftscope.drafter.arithmetic import matmul
from driftscope.drafter.attention import Prefix, Window, probabilities
from driftscope.drafter.layer import AttentionLayer


@dataclass
class TreeMemory:
    """What a set of trees attends to: one prefix for all, and per anchor the rows that were expanded so far, root first."""

    prefix: list[Prefix]
    """Per layer."""
    anchors: Int[Tensor, " anchor"]
    windows: list[Window]
    keys: list[Float[Tensor, "anchor kv_head own dim"]] = field(default_factory=list)
    """Per layer."""
    values: list[Float[Tensor, "anchor kv_head own value_dim"]] = field(default_factory=list)

    def append(self, layer: int, key: Float[Tensor, "anchor node kv_head dim"], value: Tensor) -> None:
        """The rows of a new level."""
        key, value = key.transpose(1, 2), value.transpose(1, 2)
        if layer == len(self.keys):
            self.keys.append(key)
            self.values.append(value)
        else:
            self.keys[layer] = torch.cat([self.keys[layer], key], 2)
            self.values[layer] = torch.cat([self.values[layer], value], 2)


@dataclass(frozen=True)
class Level:
    """What the nodes of one level may see of their own tree."""

    seen: Bool[Tensor, "anchor node own"]
    """Which of its tree's rows, its own included, a node sees."""
    levels: Int[Tensor, " own"]
    """Of those rows, 0 for the root."""


def tree_attention(
    query: Float[Tensor, "row head dim"],
    key: Float[Tensor, "row kv_head dim"],
    value: Float[Tensor, "row kv_head value_dim"],
    memory: TreeMemory,
    layer: AttentionLayer,
    level: Level,
) -> Float[Tensor, "row head value_dim"]:
    """Attention of the nodes of one level, rows anchor by anchor. Probabilities pass through the layer's site as in
    `chain_attention`."""
    seen, levels = level.seen, level.levels
    anchors, nodes, own = seen.shape
    _, heads, dim = query.shape
    index = layer.index
    prefix, window = memory.prefix[index], memory.windows[index]
    kv_heads, rows, _ = prefix.keys.shape
    groups = heads // kv_heads
    memory.append(index, key.unflatten(0, (anchors, nodes)), value.unflatten(0, (anchors, nodes)))

    folded = query.view(anchors * nodes, kv_heads, groups, dim).permute(1, 2, 0, 3).reshape(kv_heads, -1, dim)
    far = matmul(folded, prefix.keys.mT).view(kv_heads, groups, anchors, nodes, rows)
    split = query.view(anchors, nodes, kv_heads, groups, dim).permute(
        0, 2, 3, 1, 4
    )  # [anchor, kv_head, group, node, dim]
    stacked = split.reshape(anchors, kv_heads, groups * nodes, dim)
    near = matmul(stacked, memory.keys[index].mT).view(anchors, kv_heads, groups, nodes, own).permute(1, 2, 0, 3, 4)

    query_rows = memory.anchors + levels[-1]
    key_rows = torch.arange(rows, device=query.device)
    visible = (key_rows < memory.anchors[:, None]) & window.visible(query_rows, key_rows)
    if window.fresh:
        visible = torch.zeros_like(visible)
    if window.size is not None:
        seen = seen & window.visible(query_rows, memory.anchors[:, None] + levels)[:, None]
    scores = torch.cat([far, near], -1).float().mul_(layer.scaling)
    scores[..., :rows].masked_fill_(~visible[:, None], float("-inf"))
    scores[..., rows:].masked_fill_(~seen, float("-inf"))
    weights = probabilities(scores.view(heads, anchors * nodes, rows + own), layer.sink_logits)
    weights = layer.attention(weights.transpose(0, 1)).to(value.dtype).transpose(0, 1)  # [head, row, key]

    wide = weights.reshape(kv_heads, groups * anchors * nodes, rows + own)
    value_dim = value.shape[-1]
    mixed = (
        matmul(wide[..., :rows], prefix.values).view(kv_heads, groups, anchors, nodes, value_dim).permute(2, 3, 0, 1, 4)
    )
    close = wide[..., rows:].view(kv_heads, groups, anchors, nodes, own).permute(2, 0, 1, 3, 4)
    close = close.reshape(anchors, kv_heads, groups * nodes, own)
    added = matmul(close, memory.values[index]).view(anchors, kv_heads, groups, nodes, value_dim).permute(0, 3, 1, 2, 4)
    return (mixed + added).reshape(anchors * nodes, heads, value_dim)
