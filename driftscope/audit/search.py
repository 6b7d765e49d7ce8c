"""The search over single replacements of aux boundaries, on prompts of its own.

A candidate changes what an anchor's own row reads; the rows before it keep the features of the set that is being changed.
That makes a candidate as cheap as one step and finds the same boundary: the own row decides most of step 1. What it finds
is measured like any other hypothesis afterwards, on prompts that took no part in the search.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from driftscope.audit.batches import Batch, Material
from driftscope.audit.score import Runner, fused, step_one_loss
from driftscope.audit.setting import Setting
from driftscope.chain.chain import chain_step
from driftscope.chain.prefix_keys import prefix_keys
from driftscope.drafter import Drafter
from driftscope.drafter.attention import ChainMemory

_SWEEPS = 4
_WORTH = 0.02
"""Nats that a replacement must gain to be searched on from."""


def search_boundaries(setting: Setting, runner: Runner, num_layers: int) -> list[tuple[int, ...]]:
    """The best single replacement, then the set that repeated replacements lead to, where it is another one.

    Every boundary 0 .. num_layers must be in the captures of the runner's material.
    """
    current = setting.config.aux_boundaries
    assert current is not None
    found: list[tuple[int, ...]] = []
    for _ in range(_SWEEPS):
        here = _with(setting, current)
        drafter = runner.build(here)
        losses = _sweep(here, current, drafter, runner, num_layers)
        best = min((loss, b) for b, loss in losses.items() if b != current)
        if not found:
            found.append(best[1])
        if best[0] > losses[current] - _WORTH:
            break
        current = best[1]
    if current not in (setting.config.aux_boundaries, found[0]):
        found.append(current)
    return found


def _with(setting: Setting, boundaries: tuple[int, ...]) -> Setting:
    return replace(setting, config=setting.config.replace("user", "audit", aux_boundaries=boundaries))


@torch.no_grad()
def _sweep(
    setting: Setting, current: tuple[int, ...], drafter: Drafter, runner: Runner, num_layers: int
) -> dict[tuple[int, ...], float]:
    """Mean nats at step 1 of the current set and of every set that differs from it in one boundary."""
    candidates = [current] + [
        (*current[:slot], b, *current[slot + 1 :])
        for slot in range(len(current))
        for b in range(num_layers + 1)
        if b not in current
    ]
    totals, count = dict.fromkeys(candidates, 0.0), 0.0
    for batch in runner.material.batches:
        features = runner.material.features(setting, batch, runner.dtype)
        embedded = runner.material.embedded(setting, batch)
        prefix = prefix_keys(drafter, fused(drafter, features), embedded[:, 1 : batch.rows + 1])
        tokens = embedded.gather(1, batch.anchors + 1).flatten()
        positions = (batch.anchors + setting.lens.chain_shift).flatten()
        states = _states(runner.material, setting, batch, num_layers, runner.dtype)
        for candidate in candidates:
            read = torch.cat([states[b] for b in candidate], -1)
            memory = ChainMemory(prefix, batch.anchors, drafter.windows)
            residual = chain_step(drafter, memory, drafter.fuse(read.flatten(0, 1)), tokens, positions)
            totals[candidate] += step_one_loss(drafter, residual, batch)
        count += float(batch.valid.sum())
    return {candidate: total / count for candidate, total in totals.items()}


def _states(
    material: Material, setting: Setting, batch: Batch, num_layers: int, dtype: torch.dtype
) -> dict[int, Tensor]:
    """Every boundary at the positions that the anchors read, [prompt, anchor, hidden]."""
    places = (batch.anchors.cpu() + setting.lens.feature_shift).clamp(min=0)
    records = [material.captures[i] for i in batch.prompts.tolist()]
    return {
        b: torch.stack([record.boundaries[b][at] for record, at in zip(records, places, strict=True)]).to(
            material.device, dtype
        )
        for b in range(num_layers + 1)
    }
