"""The prefix pass of a block drafter: keys and values of the target's features, and what step 1 of every anchor attends to.

Step k of anchor t drafts the token that step 1 of anchor t+k-1 drafts, at the same position, but that one has real target
features for the k-1 rows between: it is what the drafter does at this place without drafting so far.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from driftscope.chain.baseline import SINK_CANDIDATES, PrefixPass, chunk_rows, key_regions
from driftscope.chain.block import run_blocks
from driftscope.chain.chain import Text
from driftscope.drafter.attention import Prefix, Window
from driftscope.drafter.block import BlockDrafter, context_keys


@dataclass(frozen=True)
class BlockBaseline:
    """Masses of step 1, per anchor from `first_row` (= P-1) on; `masses` is that of `driftscope.chain.prefix.Baseline`."""

    first_row: int
    drafts: int
    """The row of the block that drafts step 1; 0 is that of the known token."""
    sink: Float[Tensor, "row layer head"]
    prompt: Float[Tensor, "row layer head"]
    total: Float[Tensor, "row layer head"]
    block: Float[Tensor, "row layer head own"]
    """On each row of its block."""
    recent: Float[Tensor, "row layer head back"]
    """On the features of row t - back, sink rows excepted."""

    def rows(self, anchors: Int[Tensor, " anchor"], step: int) -> Int[Tensor, " anchor"]:
        """Indices into this baseline of the anchors whose step 1 drafts what step `step` of `anchors` drafts."""
        return anchors + step - 1 - self.first_row

    def masses(self, anchors: Int[Tensor, " anchor"], step: int) -> dict[str, Float[Tensor, "anchor layer head"]]:
        """Its mass on the very positions that make up each bucket at `step`: positions of masks there are those of real
        features, or of the known token, here. Its block reaches step - 1 positions further; what lies there is left out,
        and the rest sums to 1."""
        rows = self.rows(anchors, step)
        sink, prompt, total, block = (part[rows] for part in (self.sink, self.prompt, self.total, self.block))
        shared = block.shape[-1] - (step - 1)
        beyond = block[..., shared:].sum(-1)
        current = block[..., self.drafts]
        drafted = block[..., self.drafts + 1 : shared].sum(-1)
        if step > 1:
            # Masks of this block stand where the baseline's context and its known token stand.
            drafted = drafted + self.recent[rows][..., : max(step - 2, 0)].sum(-1)
            drafted = drafted + (block[..., 0] if self.drafts else 0)
        masses = {
            "sink": sink,
            "prompt": prompt,
            "committed": total - beyond - sink - prompt - current - drafted,
            "drafted": drafted,
            "current": current,
            "virtual": 1 - total,
        }
        rest = (1 - beyond).clamp(min=torch.finfo(beyond.dtype).tiny)
        return {name: mass / rest for name, mass in masses.items()} if step > 1 else masses


@torch.no_grad()
def block_pass(
    drafter: BlockDrafter,
    text: Text,
    windows: list[Window],
    *,
    sinks: tuple[int, ...],
    horizon: int,
    rows: int | None = None,
    budget: int = 256 << 20,
) -> PrefixPass:
    """As `driftscope.chain.prefix.prefix_pass`; `alpha` is NaN, for blocks start at anchors only."""
    config, device = drafter.config, text.features.device
    rows = len(text.token_ids) - 1 if rows is None else rows
    first = text.prompt_length - 1
    context = drafter.context(text.features[:rows])
    places = torch.arange(rows, device=device)
    prefix = []
    for layer in drafter.layers:
        key, value = context_keys(layer, context, places)
        prefix.append(Prefix(key.transpose(0, 1).contiguous(), value.transpose(0, 1).contiguous()))
    columns = torch.stack(list(key_regions(rows, sinks, text.prompt_length, device).values()), 1)
    masses = _Masses(drafter, columns, first, rows, horizon)
    hooks = [layer.attention.register_forward_hook(masses.reader(layer.index)) for layer in drafter.layers]
    try:
        chunk = chunk_rows(block_bytes(drafter, rows), budget)
        for start in range(first, rows, chunk):
            anchors = places[start : start + chunk]
            seen = min(start + chunk, rows) - 1
            part = [Prefix(layer.keys[:, :seen], layer.values[:, :seen]) for layer in prefix]
            masses.anchors = anchors
            run_blocks(drafter, text.features[anchors], anchors, text.token_ids[anchors + 1], part, windows)
    finally:
        for hook in hooks:
            hook.remove()
    alpha = torch.full((config.num_layers, config.num_heads, SINK_CANDIDATES), float("nan"), device=device)
    return PrefixPass(prefix, masses.baseline, alpha)


def block_bytes(drafter: BlockDrafter, rows: int) -> int:
    """Bytes of scores and logits of one block over `rows` rows of prefix, with the copies that are made of them."""
    per_row = drafter.config.num_heads * (rows + drafter.rows + 1) + drafter.config.draft_vocab_size
    return drafter.rows * per_row * 4 * 4


class _Masses:
    """Gathers the baseline from the attention of the chunk at `anchors`."""

    def __init__(self, drafter: BlockDrafter, columns: Tensor, first: int, rows: int, horizon: int) -> None:
        config = drafter.config
        self.columns, self.block, self.row = columns, drafter.rows, drafter.row_of(1)
        self.anchors = columns.new_empty(0, dtype=torch.long)
        wide = (rows - first, config.num_layers, config.num_heads)
        self.baseline = BlockBaseline(
            first,
            self.row,
            sink=columns.new_empty(wide),
            prompt=columns.new_empty(wide),
            total=columns.new_empty(wide),
            block=columns.new_empty((*wide, drafter.rows)),
            recent=columns.new_empty((*wide, horizon)),
        )

    def reader(self, layer: int) -> Callable[[object, object, Tensor], None]:
        """A forward hook for the attention site of a layer."""

        def read(module: object, args: object, weights: Tensor) -> None:
            self._take(layer, weights.float().unflatten(0, (-1, self.block))[:, self.row])

        return read

    def _take(self, layer: int, weights: Float[Tensor, "anchor head key"]) -> None:
        base, anchors = self.baseline, self.anchors
        here = anchors - base.first_row
        prefix = weights.shape[-1] - self.block - 1
        far, newest, block = weights.split([prefix, 1, self.block], -1)
        on_sink = self.columns[anchors, 0][:, None]
        base.sink[here, layer] = far @ self.columns[:prefix, 0] + newest[..., 0] * on_sink
        base.prompt[here, layer] = far @ self.columns[:prefix, 1]
        base.total[here, layer] = weights.sum(-1)
        base.block[here, layer] = block
        back = torch.arange(1, base.recent.shape[-1], device=weights.device)
        keys = anchors[:, None] - back
        counted = (keys >= 0) & (self.columns[keys.clamp(min=0), 0] == 0)
        index = keys.clamp(min=0)[:, None].expand(-1, weights.shape[1], -1)
        base.recent[here, layer, :, 0] = newest[..., 0] * (1 - on_sink)
        if prefix:
            base.recent[here, layer, :, 1:] = far.gather(-1, index) * counted[:, None]
        else:
            base.recent[here, layer, :, 1:] = 0
