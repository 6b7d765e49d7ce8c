"""Every anchor of a text times every speculation step, as one nn.Module forward."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from driftscope.checkpoints.config import DrafterConfig
from driftscope.drafter.argmax import largest
from driftscope.drafter.attention import ChainMemory, Prefix, Window, chain_attention
from driftscope.drafter.layer import AttentionLayer
from driftscope.drafter.model import Drafter

Feed = Literal["drafted", "text"]


@dataclass(frozen=True)
class Text:
    """One prompt and its greedy continuation, as the drafter sees it."""

    token_ids: Int[Tensor, " token"]
    prompt_length: int
    features: Float[Tensor, "token width"]
    """Row i pairs features[i] with token_ids[i + 1]."""

    def anchors(self, horizon: int) -> Int[Tensor, " anchor"]:
        """P-1 .. T-2-horizon: every row of the continuation whose deepest step still has a token to compare with."""
        return torch.arange(self.prompt_length - 1, len(self.token_ids) - 1 - horizon, device=self.token_ids.device)


@dataclass(frozen=True)
class ChainInputs:
    """What a set of chains starts from."""

    anchors: Int[Tensor, " anchor"]
    features: Float[Tensor, "anchor width"]
    tokens: Int[Tensor, "anchor depth"]
    """Tokens t+1 .. t+depth of the text; step 1 embeds the first, the `text` feed also the others."""
    prefix: list[Prefix]
    windows: list[Window]
    depth: int
    feed: Feed
    positions: Int[Tensor, "anchor depth"] | None = None
    """Where the rows of each step stand; None where step k of anchor t stands as the drafter's config says, from t on."""

    def part(self, rows: slice) -> ChainInputs:
        """The chains `rows`, with no more of the prefix than they see."""
        anchors = self.anchors[rows]
        seen = max(int(anchors[-1]), 0) if len(anchors) else 0
        positions = None if self.positions is None else self.positions[rows]
        prefix = [Prefix(layer.keys[:, :seen], layer.values[:, :seen]) for layer in self.prefix]
        tokens, features = self.tokens[rows], self.features[rows]
        return replace(self, anchors=anchors, features=features, tokens=tokens, prefix=prefix, positions=positions)


def chain_inputs(
    text: Text, prefix: list[Prefix], windows: list[Window], *, anchors: Int[Tensor, " anchor"], depth: int, feed: Feed
) -> ChainInputs:
    """What the chains of a text start from.

    Args:
        text: the text.
        prefix: keys and values of its rows, per layer.
        windows: per layer.
        anchors: long [anchor], ascending.
        depth: steps.
        feed: whether later steps embed the drafted token or the text's.

    Returns:
        Inputs for a Chain; features [anchor, width], tokens [anchor, depth].
    """
    ahead = torch.arange(1, depth + 1, device=anchors.device)
    return ChainInputs(
        anchors=anchors,
        features=text.features[anchors],
        tokens=text.token_ids[anchors[:, None] + ahead],
        prefix=prefix,
        windows=windows,
        depth=depth,
        feed=feed,
    )


def mask_token(config: DrafterConfig) -> int:
    """The token that a drafter embeds where it knows none."""
    assert config.mask_token_id is not None, "the reader asks for it"
    return config.mask_token_id


def chain_step(
    drafter: Drafter,
    memory: ChainMemory,
    state: Float[Tensor, "row hidden"],
    token_ids: Int[Tensor, " row"],
    positions: Int[Tensor, " row"],
) -> Float[Tensor, "row out"]:
    """The residual of the next step of all chains of a memory; rows are anchors, prompt by prompt."""

    def attend(layer: AttentionLayer, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return chain_attention(query, key, value, memory, layer)

    return drafter.step(state, token_ids, positions, attend)


class Chain(nn.Module):
    """Runs the chains; step k of all anchors is one pass of the drafter over as many rows as there are anchors."""

    def __init__(self, drafter: Drafter) -> None:
        super().__init__()
        self.drafter = drafter

    def forward(self, inputs: ChainInputs) -> Int[Tensor, "anchor depth"]:
        """The drafted tokens, as ids of the target's vocabulary."""
        drafter = self.drafter
        memory = ChainMemory(inputs.prefix, inputs.anchors, inputs.windows)
        state = drafter.fuse(inputs.features)
        token_ids = inputs.tokens[:, 0]
        drafted: list[Tensor] = []
        for step in range(inputs.depth):
            if step > 0 and not drafter.config.carries:
                # Every later step starts from the masks: neither state nor token of the one before.
                state = drafter.mask_state().expand_as(state)
                token_ids = torch.full_like(token_ids, mask_token(drafter.config))
            elif step > 0:
                token_ids = inputs.tokens[:, step] if inputs.feed == "text" else drafted[-1]
            if inputs.positions is None:
                positions = inputs.anchors + step * drafter.config.position_increment
            else:
                positions = inputs.positions[:, step]
            state, logits = drafter.finish(chain_step(drafter, memory, state, token_ids, positions))
            drafted.append(drafter.target_ids[largest(logits)])
        return torch.stack(drafted, 1)
