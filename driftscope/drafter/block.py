"""A block drafter (DFlash): all tokens of a round from one pass over a block of masks.

Source: DFlash (arXiv 2602.06036) and its released modules. The target's features enter as keys and values only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from driftscope.checkpoints.config import DrafterConfig
from driftscope.drafter.arithmetic import matmul
from driftscope.drafter.attention import Prefix, Window, probabilities
from driftscope.drafter.layer import DrafterLayer
from driftscope.drafter.model import Drafter
from driftscope.drafter.norms import RMSNorm

CONTEXT_SITES = ("state", "state_norm")
"""Fire once a block, with a row per anchor: the newest target feature. All other sites have a row per row of the block."""


class BlockDrafter(Drafter):
    """The block of anchor t stands at positions t+1 .. t+B: the known token t+1, then masks. Its rows attend to the
    features of positions 0..t, made keys and values by hidden_norm and k_proj, v_proj, and to each other.

    Row j drafts token t+1+j, so that step k is row k; with `sample_from_anchor` row j drafts token t+2+j, and step k is
    row k-1.
    """

    def __init__(self, config: DrafterConfig) -> None:
        super().__init__(config)
        self.hidden_norm = RMSNorm(config.hidden_size, config.rms_norm_eps, config.norm_offset)

    def entry_sites(self) -> tuple[str, ...]:
        return (*CONTEXT_SITES, "embed")

    @property
    def rows(self) -> int:
        """Rows of a block."""
        assert self.config.block_size is not None, "the reader asks for it"
        return self.config.block_size

    @property
    def max_steps(self) -> int | None:
        return self.rows - (not self.config.sample_from_anchor)

    def row_of(self, step: int) -> int:
        """The row of the block that drafts step `step`."""
        return step - self.config.sample_from_anchor

    def context(self, features: Float[Tensor, "row width"]) -> Float[Tensor, "row hidden"]:
        """What keys and values of the context are made from."""
        return self.state_norm(self.hidden_norm(self.state(self.fuse(features))))

    def causal(self, layer: int) -> bool:
        """Whether rows of the block see only those before them in this layer."""
        windowed = (self.config.sliding_window or (None,) * self.config.num_layers)[layer] is not None
        return {"none": False, "sliding": windowed, "all": True}[self.config.block_causal]


@dataclass
class BlockMemory:
    """What the blocks of a set of anchors attend to beside themselves. The newest row, t, is the anchors' own, so that
    an intervention on its feature reaches its key and value."""

    prefix: list[Prefix]
    """Per layer."""
    anchors: Int[Tensor, " anchor"]
    windows: list[Window]
    """Per layer."""
    newest: Float[Tensor, "anchor hidden"]
    """`BlockDrafter.context` of row t."""


def context_keys(
    layer: DrafterLayer, context: Float[Tensor, "row hidden"], positions: Int[Tensor, " row"]
) -> tuple[Float[Tensor, "row kv_head dim"], Float[Tensor, "row kv_head dim"]]:
    """Keys after rope, and values, of context rows."""
    attn: Any = layer.self_attn
    key, value = (project(context).unflatten(-1, (-1, attn.head_dim)) for project in (attn.k_proj, attn.v_proj))
    if hasattr(attn, "k_norm"):
        key = attn.k_norm(key)
    return layer.rotary(key, positions), value


def block_attention(
    drafter: BlockDrafter, layer: DrafterLayer, query: Tensor, key: Tensor, value: Tensor, memory: BlockMemory
) -> Float[Tensor, "row head dim"]:
    """Attention of one layer for all blocks at once; query, key and value are [anchor * block row, head, dim].

    The probabilities, [anchor * block row, head, prefix row then row t then block row], pass through `layer.attention`.
    """
    prefix, window, anchors = memory.prefix[layer.index], memory.windows[layer.index], memory.anchors
    count, block = len(anchors), drafter.rows
    kv_heads, rows, dim = prefix.keys.shape
    heads = query.shape[1]
    groups = heads // kv_heads
    newest_key, newest_value = context_keys(layer, memory.newest, anchors)

    def own(newest: Tensor, rest: Tensor) -> Float[Tensor, "anchor kv_head own dim"]:
        return torch.cat([newest[:, None], rest.view(count, block, kv_heads, -1)], 1).transpose(1, 2)

    own_keys, own_values = own(newest_key, key), own(newest_value, value)
    # One product per key/value head serves all blocks and the query heads that share it.
    split = query.view(count, block, kv_heads, groups, dim)
    folded = split.permute(2, 3, 0, 1, 4).reshape(kv_heads, groups * count * block, dim)
    far = matmul(folded, prefix.keys.mT).view(kv_heads, groups, count, block, rows)
    near = matmul(split.permute(0, 2, 3, 1, 4).reshape(count, kv_heads, groups * block, dim), own_keys.mT)
    near = near.view(count, kv_heads, groups, block, block + 1).permute(1, 2, 0, 3, 4)

    scores = torch.cat([far, near], -1).float().mul_(layer.scaling)
    seen = torch.cat(
        [_far(anchors, block, rows, window), _near(anchors, block, window, drafter.causal(layer.index))], -1
    )
    scores.masked_fill_(~seen, float("-inf"))
    weights = probabilities(scores.view(heads, count * block, rows + block + 1), layer.sink_logits)
    weights = layer.attention(weights.transpose(0, 1)).to(value.dtype)  # [anchor * block row, head, key]

    weights = weights.transpose(0, 1).reshape(kv_heads, groups * count * block, rows + block + 1)
    mixed = matmul(weights[..., :rows], prefix.values).view(kv_heads, groups, count, block, -1).permute(2, 3, 0, 1, 4)
    mine = weights[..., rows:].view(kv_heads, groups, count, block, block + 1).permute(2, 0, 1, 3, 4)
    mine = matmul(mine.reshape(count, kv_heads, groups * block, block + 1), own_values)
    mixed = mixed + mine.view(count, kv_heads, groups, block, -1).permute(0, 3, 1, 2, 4)
    return mixed.reshape(count * block, heads, -1)


def _far(anchors: Tensor, block: int, rows: int, window: Window) -> Bool[Tensor, "anchor row key"]:
    """Whether the rows of the blocks see each row of the prefix."""
    keys = torch.arange(rows, device=anchors.device)
    places = positions(anchors, block)
    seen = window.visible(places, keys).view(len(anchors), block, rows)
    return seen & (keys < anchors[:, None, None])


def _near(anchors: Tensor, block: int, window: Window, causal: bool) -> Bool[Tensor, "anchor row key"]:
    """Whether they see row t and each other."""
    place = torch.arange(block + 1, device=anchors.device)
    keys = (anchors[:, None] + place).repeat_interleave(block, 0)
    seen = window.visible(positions(anchors, block), keys).view(len(anchors), block, block + 1)
    return seen & (place <= place[1:, None]) if causal else seen


def positions(anchors: Int[Tensor, " anchor"], block: int) -> Int[Tensor, " row"]:
    """Positions of the rows of all blocks, t+1 .. t+B for anchor t."""
    return (anchors[:, None] + 1 + torch.arange(block, device=anchors.device)).flatten()
