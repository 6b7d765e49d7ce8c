"""nnsight traces over a chain: read sites at every step, apply interventions, reduce on the spot.

Two mistakes are silent in a loop over steps: a site read out of execution order binds to the next step, and a site that never
fires again ends the loop with a mere warning. Hence sites are read in the order that the drafter declares, starting with
`state`; that warning is an error here; and the number of steps seen is checked.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import nnsight
import torch
from torch import Tensor

from driftscope.chain.block_measure import trace_blocks
from driftscope.chain.block_prefix import block_bytes
from driftscope.chain.chain import ChainInputs
from driftscope.chain.chunks import chunked
from driftscope.chain.interventions import Intervention
from driftscope.chain.room import USUAL
from driftscope.drafter.block import BlockDrafter
from driftscope.drafter.site import site

Values = dict[str, Tensor]
Measure = Callable[[int, slice, Values], dict[str, Tensor]]
"""(step from 1, the chunk's rows among the anchors, site -> value) -> quantities with one entry per anchor in front."""


class HookError(RuntimeError):
    """A hook did not see what it should: a site fired another number of times, or a loop over steps was cut short."""


def attention_bytes(inputs: ChainInputs, heads: int) -> int:
    """Bytes of attention scores of one anchor at the deepest step, with the copies that softmax and masks make."""
    return heads * (inputs.prefix[0].keys.shape[1] + inputs.depth) * 4 * 4


def observe(
    model: Any,
    inputs: ChainInputs,
    measure: Measure,
    *,
    sites: Sequence[str],
    first_sites: Sequence[str] = (),
    interventions: Sequence[Intervention] = (),
    budget: int = USUAL,
) -> list[dict[str, Tensor]]:
    """Run the chains and reduce what sites hold on the spot.

    Chunks are over anchors, one trace a chunk; results do not depend on the chunks.

    Args:
        model: nnsight envelope of a Chain or BlockChain.
        inputs: what the chains start from.
        measure: gets the step, the rows of the chunk and the sites; its quantities have one entry per anchor in front.
        sites: read at every step.
        first_sites: read at step 1 only and handed to `measure` then.
        interventions: overwrite sites before they are read.
        budget: bytes that the attention scores of a chunk may hold.

    Returns:
        For each step what `measure` made, [anchor, ...].

    Raises:
        HookError: a site that there is not, or one that did not fire exactly once a step.
    """
    drafter: Any = model._module.drafter
    order = [name for name in drafter.step_sites if name in {"state", *sites, *(i.site for i in interventions)}]
    unknown = {*sites, *(i.site for i in interventions)} - set(drafter.step_sites)
    unknown |= set(first_sites) - set(drafter.first_sites)
    if unknown:
        raise HookError(
            f"no such site: {', '.join(sorted(unknown))}; this drafter has {', '.join(drafter.step_sites)} and, at step 1 only, "
            f"{', '.join(drafter.first_sites)}"
        )
    by_site: dict[str, list[Intervention]] = {}
    for intervention in interventions:
        by_site.setdefault(intervention.site, []).append(intervention)
    first = [name for name in drafter.first_sites if name in first_sites]
    count, heads = len(inputs.anchors), drafter.config.num_heads
    blocks = isinstance(drafter, BlockDrafter)
    cost = block_bytes(drafter, inputs.prefix[0].keys.shape[1]) if blocks else attention_bytes(inputs, heads)
    size = max(1, min(count, budget // max(1, cost)))
    trace = trace_blocks if blocks else _trace

    def run(rows: slice) -> list[dict[str, Tensor]]:
        return trace(model, inputs.part(rows), rows, measure, order, first, by_site)

    chunks = chunked(count, size, run, "anchors")
    return [
        {name: torch.cat([chunk[step][name] for chunk in chunks]) for name in chunks[0][step]}
        for step in range(inputs.depth)
    ]


def _trace(
    model: Any,
    inputs: ChainInputs,
    rows: slice,
    measure: Measure,
    order: list[str],
    first: list[str],
    by_site: dict[str, list[Intervention]],
) -> list[dict[str, Tensor]]:
    steps: list[dict[str, Tensor]] = []
    modules = {name: site(model.drafter, name) for name in order}
    first_modules = {name: site(model.drafter, name) for name in first}
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*was never reached.*")
        try:
            with torch.no_grad(), model.trace(inputs) as tracer:
                seen = nnsight.save(steps)
                opening = {}
                for name, module in first_modules.items():
                    opening[name] = module.output
                for index in tracer.iter[: inputs.depth]:
                    values = {}
                    for name, module in modules.items():
                        value = module.output
                        for intervention in by_site.get(name, ()):
                            if intervention.acts(index + 1):
                                value = intervention(value, index + 1, rows)
                                module.output = value
                        values[name] = value
                    if index == 0:
                        values.update(opening)
                    seen.append(measure(index + 1, rows, values))
        except UserWarning as warning:
            raise HookError(f"a site did not fire at every step: {warning}") from warning
    if len(seen) != inputs.depth:
        raise HookError(f"hooks saw {len(seen)} steps, the chain made {inputs.depth}")
    return list(seen)
