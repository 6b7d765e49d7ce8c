"""All blocks of a text as one nn.Module forward: what Chain is to a drafter that drafts token by token."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from driftscope.chain.chain import Chain, ChainInputs, mask_token
from driftscope.drafter.argmax import largest
from driftscope.drafter.attention import Prefix, Window
from driftscope.drafter.block import BlockDrafter, BlockMemory, block_attention, positions
from driftscope.drafter.layer import DrafterLayer
from driftscope.drafter.model import Drafter


class BlockChain(nn.Module):
    """Runs the blocks of all anchors in one pass; nothing is fed back, so `feed` makes no difference."""

    def __init__(self, drafter: BlockDrafter) -> None:
        super().__init__()
        self.drafter = drafter

    def forward(self, inputs: ChainInputs) -> Int[Tensor, "anchor depth"]:
        """The drafted tokens of the first `depth` steps, as ids of the target's vocabulary."""
        drafter = self.drafter
        logits = run_blocks(
            drafter, inputs.features, inputs.anchors, inputs.tokens[:, 0], inputs.prefix, inputs.windows
        ).unflatten(0, (-1, drafter.rows))
        first = drafter.row_of(1)
        return drafter.target_ids[largest(logits[:, first : first + inputs.depth])]


def run_blocks(
    drafter: BlockDrafter,
    features: Float[Tensor, "anchor width"],
    anchors: Int[Tensor, " anchor"],
    known: Int[Tensor, " anchor"],
    prefix: list[Prefix],
    windows: list[Window],
) -> Float[Tensor, "row draft_vocab"]:
    """Logits of all rows of all blocks. features: of row t; known: token t+1; prefix: keys and values of rows < t."""
    config = drafter.config
    memory = BlockMemory(prefix, anchors, windows, drafter.context(features))
    token_ids = torch.full((len(anchors), drafter.rows), mask_token(config), device=anchors.device)
    token_ids[:, 0] = known
    residual = drafter.embed(drafter.embed_tokens(token_ids.flatten()) * config.embed_scale)
    places = positions(anchors, drafter.rows)

    def attend(layer: DrafterLayer, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return block_attention(drafter, layer, query, key, value, memory)

    for layer in drafter.layers:
        residual = layer(layer.read(residual), residual, places, attend)
    return drafter.finish(drafter.residual(residual))[1]


def chain_of(drafter: Drafter) -> Any:
    """The module that drafts from every anchor: a BlockChain for a block drafter, else a Chain."""
    return BlockChain(drafter) if isinstance(drafter, BlockDrafter) else Chain(drafter)
