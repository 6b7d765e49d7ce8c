"""Draft trees of all anchors at once: a level of every tree is one pass of the drafter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from driftscope.chain.chain import ChainInputs, chain_inputs
from driftscope.chain.chunks import chunked
from driftscope.chain.prompt_chains import Subject
from driftscope.chain.tree_attention import Level, TreeMemory, tree_attention
from driftscope.chain.tree_shape import Path, TreeShape
from driftscope.drafter.layer import AttentionLayer
from driftscope.drafter.model import Drafter


@dataclass(frozen=True)
class Trees:
    """The nodes of every anchor's tree that there are to choose from, level by level."""

    tokens: Int[Tensor, "anchor candidate"]
    """Ids of the target's vocabulary."""
    parent: Int[Tensor, "anchor candidate"]
    """Place of the parent among the candidates, -1 for the root."""
    level: Int[Tensor, " candidate"]
    """From 1."""
    score: Float[Tensor, "anchor candidate"]
    """Log of the product of the drafter's probabilities on the path."""
    order: Int[Tensor, "anchor kept"]
    """Candidates in the order in which a growing budget takes them, parents before their children."""

    def taken(self) -> Int[Tensor, "anchor candidate"]:
        """The smallest number of nodes with which each candidate is in the tree; 0 for one that never is."""
        at = torch.zeros_like(self.parent)
        places = torch.arange(1, self.order.shape[1] + 1, device=at.device).expand_as(self.order)
        return at.scatter_(1, self.order, places)

    def accepted_at(self, text: Int[Tensor, "anchor step"]) -> Int[Tensor, "anchor step"]:
        """Per step the smallest number of nodes with which the text's token is accepted; 0 where no number is enough.

        Greedy verification: a node is accepted iff its path is the text, so that at most one node of a level is.
        """
        found = torch.zeros_like(text)
        taken = self.taken()
        on_path = torch.zeros_like(self.parent, dtype=torch.bool)
        for step in range(text.shape[1]):
            places = (self.level == step + 1).nonzero()[:, 0]
            if not len(places):
                break
            parent = self.parent[:, places]
            alive = (parent < 0) | on_path.gather(1, parent.clamp(min=0))
            right = alive & (self.tokens[:, places] == text[:, step : step + 1]) & (taken[:, places] > 0)
            on_path[:, places] = right
            found[:, step] = (right * taken[:, places]).sum(1)
        return found


def subject_trees(subject: Subject, shape: TreeShape) -> Trees:
    """The trees of all anchors of a prompt. DriftscopeError for a tree larger than the draft vocabulary."""
    drafter = subject.pair.drafter
    shape.check(drafter.config.draft_vocab_size)
    inputs = chain_inputs(
        subject.text, subject.passed.prefix, subject.windows, anchors=subject.anchors, depth=1, feed="drafted"
    )
    size = max(1, subject.budget // tree_bytes(drafter, inputs.prefix[0].keys.shape[1], shape))

    def run(rows: slice) -> Trees:
        return grow(drafter, inputs.part(rows), shape)

    parts = chunked(len(inputs.anchors), size, run, "anchors")
    whole = {
        name: torch.cat([getattr(part, name) for part in parts]) for name in ("tokens", "parent", "score", "order")
    }
    return Trees(**whole, level=parts[0].level)


def tree_bytes(drafter: Drafter, rows: int, shape: TreeShape) -> int:
    """Bytes of scores and logits of one anchor's tree at its widest, with the copies that are made of them."""
    width = shape.topk if shape.paths is None else max(1, len(shape.paths))
    own = 1 + width * shape.steps
    return width * (drafter.config.num_heads * (rows + own) + drafter.config.draft_vocab_size) * 4 * 4


@torch.no_grad()
def grow(drafter: Drafter, inputs: ChainInputs, shape: TreeShape) -> Trees:
    """The trees at `inputs.anchors`, whose tokens t+1 are the roots."""
    anchors, device, topk = inputs.anchors, inputs.anchors.device, shape.topk
    count, increment = len(anchors), drafter.config.position_increment
    static = None if shape.paths is None else _StaticLevels(shape.paths, topk)
    memory = TreeMemory(inputs.prefix, anchors, inputs.windows)
    state, tokens = drafter.fuse(inputs.features), inputs.tokens[:, :1]
    seen = torch.ones(count, 1, 1, dtype=torch.bool, device=device)
    levels = torch.zeros(1, dtype=torch.long, device=device)
    base = torch.zeros(count, 1, device=device)
    node = torch.full((count, 1), -1, device=device)
    made: list[tuple[Tensor, Tensor, Tensor]] = []
    offset = 0
    for level in range(shape.steps):
        width = tokens.shape[1]
        positions = (anchors + level * increment).repeat_interleave(width)
        carry, logits = _pass(drafter, state, tokens, positions, memory, Level(seen, levels))
        values, best = logits.float().log_softmax(-1).topk(topk, -1)
        score = (base[..., None] + values.unflatten(0, (count, width))).flatten(1)
        children = drafter.target_ids[best].view(count, width * topk)
        made.append((children, node.repeat_interleave(topk, 1), score))
        if level + 1 == shape.steps:
            break
        chosen = score.topk(min(topk, score.shape[1]), -1).indices if static is None else static.expanded(level, score)
        slot = chosen // topk
        state = carry.view(count, width, -1).gather(1, slot[..., None].expand(-1, -1, carry.shape[-1])).flatten(0, 1)
        tokens, base, node = children.gather(1, chosen), score.gather(1, chosen), offset + chosen
        inherited = seen.gather(1, slot[..., None].expand(-1, -1, seen.shape[2]))
        itself = torch.eye(chosen.shape[1], dtype=torch.bool, device=device).expand(count, -1, -1)
        seen = torch.cat([inherited, itself], 2)
        levels = torch.cat([levels, levels.new_full((chosen.shape[1],), level + 1)])
        offset += width * topk
    tokens, parent, score = (torch.cat(parts, 1) for parts in zip(*made, strict=True))
    sizes = torch.tensor([part[0].shape[1] for part in made], device=device)
    level_of = torch.arange(1, len(made) + 1, device=device).repeat_interleave(sizes)
    if static is None:
        # Candidates lie level by level: where a child is as likely as its parent, a stable sort keeps the parent first.
        order = torch.sort(score, dim=-1, descending=True, stable=True).indices
    else:
        order = torch.tensor(static.order, device=device).expand(count, -1)
    return Trees(tokens, parent, level_of, score, order)


def _pass(
    drafter: Drafter,
    state: Float[Tensor, "row hidden"],
    tokens: Int[Tensor, "anchor node"],
    positions: Int[Tensor, " row"],
    memory: TreeMemory,
    level: Level,
) -> tuple[Tensor, Tensor]:
    """Carry and logits of the nodes of a level, rows anchor by anchor."""

    def attend(layer: AttentionLayer, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return tree_attention(query, key, value, memory, layer, level)

    return drafter.finish(drafter.step(state, tokens.flatten(), positions, attend))


class _StaticLevels:
    """Where the nodes of a static tree lie among the candidates, which are the topk children of every expanded node."""

    def __init__(self, paths: Sequence[Path], topk: int) -> None:
        inner = {path[:-1] for path in paths}
        self.chosen: list[list[int]] = []
        """Per level, the candidates to expand, by their place in it."""
        at: dict[Path, int] = {}
        slots: dict[Path, int] = {(): 0}
        offset = 0
        for level in range(max(map(len, paths))):
            own = [path for path in paths if len(path) == level + 1]
            at |= {path: offset + slots[path[:-1]] * topk + path[-1] for path in own}
            expanded = [path for path in own if path in inner]
            self.chosen.append([at[path] - offset for path in expanded])
            offset += len(slots) * topk
            slots = {path: place for place, path in enumerate(expanded)}
        self.order = [at[path] for path in paths]

    def expanded(self, level: int, score: Tensor) -> Int[Tensor, "anchor node"]:
        return torch.tensor(self.chosen[level], device=score.device).expand(len(score), -1)
