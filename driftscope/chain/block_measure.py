"""What is read off the blocks of one prompt: step k is the row that drafts it, its keys are context and block."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import nnsight
import torch
from jaxtyping import Float, Int
from torch import Tensor

from driftscope.chain.chain import ChainInputs
from driftscope.chain.interventions import Intervention
from driftscope.chain.masses import Runs, attention_entropy, region_sums
from driftscope.chain.measure import BUCKETS, StepMeasure
from driftscope.drafter.block import CONTEXT_SITES, BlockDrafter
from driftscope.drafter.site import site
from driftscope.errors import DriftscopeError


class BlockMeasure(StepMeasure):
    """StepMeasure for a block drafter. The buckets: `committed` are the features of rows P-1..t and the known token's row,
    `current` is the row that drafts, `drafted` are the other masks. Nothing is carried, so there are no cosines and no
    growth."""

    drafter: BlockDrafter

    def _attention(self, step: int, anchors: Tensor, values: dict[str, Tensor]) -> dict[str, Tensor]:
        drafter, row = self.drafter, self.drafter.row_of(step)
        weights = [values[f"layers.{layer}.attention"].float() for layer in range(drafter.config.num_layers)]
        mass = torch.stack([block_masses(w, row, drafter.rows, anchors, self.columns, self.runs) for w in weights], 1)
        matched = self.baseline.masses(anchors, step)
        heavy = heavy_block_keys(weights, drafter.rows, anchors, self.heaviest) if self.heaviest else {}
        return {
            **heavy,
            "mass": mass,
            "excess": mass - torch.stack([matched[name] for name in BUCKETS], -1),
            "keys": block_keys(row, drafter.rows, anchors, self.counts),
            "head_entropy": torch.stack([attention_entropy(w) for w in weights], 1),
        }


def block_masses(
    weights: Float[Tensor, "anchor head key"],
    row: int,
    block: int,
    anchors: Int[Tensor, " anchor"],
    columns: Float[Tensor, "row region"],
    runs: Runs,
) -> Float[Tensor, "anchor head bucket"]:
    """Mass per bucket of the block's row `row`. Keys are the prefix rows in view, row t, and the rows of the block."""
    prefix = weights.shape[-1] - block - 1
    far, newest, rows = weights.split([prefix, 1, block], -1)
    sink, prompt, committed = region_sums(far, runs)
    on_sink = columns[anchors, 0][:, None]
    newest, current = newest[..., 0], rows[..., row]
    known = rows[..., 0] if row else torch.zeros_like(current)
    sink, committed = sink + newest * on_sink, committed + newest * (1 - on_sink) + known
    virtual = (1 - weights.sum(-1)).clamp(min=0)
    return torch.stack([sink, prompt, committed, rows.sum(-1) - current - known, current, virtual], -1)


def block_keys(row: int, block: int, anchors: Int[Tensor, " anchor"], counts: Tensor) -> Int[Tensor, "anchor bucket"]:
    """Number of keys that each bucket holds for a row with full attention. counts: those of `rows_before`."""
    # Row t counts where it belongs: sink or committed.
    sink, prompt, committed = counts[anchors + 1].unbind(-1)
    one, none = torch.ones_like(sink), torch.zeros_like(sink)
    known = one if row else none
    return torch.stack([sink, prompt, committed + known, one * (block - 1) - known, one, none], -1)


def heavy_block_keys(
    weights: Sequence[Float[Tensor, "anchor head key"]], block: int, anchors: Int[Tensor, " anchor"], count: int
) -> dict[str, Tensor]:
    """As `driftscope.chain.masses.heavy_keys`: a key of the context has its feature's position, one of the block its own."""
    mean = torch.stack([w.mean(1) for w in weights]).mean(0)
    prefix = mean.shape[-1] - block - 1
    mass, index = mean.topk(min(count, mean.shape[-1]), -1)
    found = {
        "heavy_mass": mass,
        "heavy_position": torch.where(index < prefix, index, anchors[:, None] + index - prefix).int(),
        "heavy_own": index > prefix,
    }
    short = count - mass.shape[-1]
    return {name: torch.nn.functional.pad(value, (0, short)) for name, value in found.items()} if short else found


def trace_blocks(
    model: Any,
    inputs: ChainInputs,
    rows: slice,
    measure: Any,
    order: Sequence[str],
    first: Sequence[str],
    by_site: dict[str, list[Intervention]],
) -> list[dict[str, Tensor]]:
    """One trace over a chunk of blocks: every site fires once, then `measure` is called step by step.

    An intervention is applied step by step as well, on the row that drafts the step; at step 1 also on the known token's row.
    """
    drafter: BlockDrafter = model._module.drafter
    if drafter.max_steps is not None and inputs.depth > drafter.max_steps:
        raise DriftscopeError(
            f"a block of {drafter.rows} rows drafts {drafter.max_steps} tokens, {inputs.depth} are asked of it"
        )
    modules = {name: site(model.drafter, name) for name in (*first, *order)}
    values: dict[str, Tensor] = {}
    with torch.no_grad(), model.trace(inputs):
        seen = nnsight.save(values)
        for name, module in modules.items():
            value = module.output
            if name in by_site:
                value = intervened(drafter, name, value, by_site[name], inputs.depth, rows)
                module.output = value
            seen[name] = value
    return [measure(step, rows, at_step(drafter, seen, first, step)) for step in range(1, inputs.depth + 1)]


def intervened(
    drafter: BlockDrafter, name: str, value: Tensor, interventions: Sequence[Intervention], depth: int, rows: slice
) -> Tensor:
    """The site's values with the interventions applied, in the shape that the site has."""
    if name in CONTEXT_SITES:
        for intervention in interventions:
            value = intervention(value, 1, rows) if intervention.acts(1) else value
        return value
    blocks = value.unflatten(0, (-1, drafter.rows)).clone()
    for step in range(1, depth + 1):
        row = drafter.row_of(step)
        for place in {row, 0} if step == 1 else {row}:
            for intervention in interventions:
                if intervention.acts(step):
                    blocks[:, place] = intervention(blocks[:, place], step, rows)
    return blocks.flatten(0, 1)


def at_step(drafter: BlockDrafter, seen: dict[str, Tensor], first: Sequence[str], step: int) -> dict[str, Tensor]:
    """What the sites hold for one step: the row that drafts it; at step 1 also what is there once a block."""
    once = {*first, *CONTEXT_SITES}
    row = drafter.row_of(step)
    values = {name: v.unflatten(0, (-1, drafter.rows))[:, row] for name, v in seen.items() if name not in once}
    return values if step > 1 else values | {name: value for name, value in seen.items() if name in once}
