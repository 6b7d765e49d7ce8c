"""Whether two devices measure the same on one pair: tolerances, differences, and what is compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from driftscope.captures.capture import Capture
from driftscope.captures.record import record
from driftscope.chain.chain import Feed
from driftscope.chain.measure import BUCKETS
from driftscope.chain.pair import Pair, load_pair
from driftscope.chain.prompt_chains import Settings, Subject

Steps = list[dict[str, Tensor]]

CAPTURE_TOLERANCE = 1e-3
"""Of the recorded states: largest difference relative to the largest value of that boundary at that position."""
ROW_TOLERANCE = {"rms": 1e-3, "mass": 1e-4, "excess": 2e-4, "matched_growth": 1e-3, "cos": 1e-4, "prob": 1e-3}
"""By the start of a quantity's name; relative where values may exceed 1 (rms, matched_growth), else absolute."""
RELATIVE = ("rms", "matched_growth")
MAX_OTHER_TOKENS = 0.002
"""Share of drafted tokens that may differ: near ties, ranked otherwise by another order of summation."""


@dataclass
class OnCpu:
    """What is compared with: a pair on the CPU in float32, texts of its target, and the text-fed chains over them."""

    checkpoint: str
    target: str
    pair: Pair
    captures: list[Capture]
    settings: Settings
    problems: list[str] = field(default_factory=list)
    """A line for each thing that was not as it should be."""

    @cached_property
    def chains(self) -> list[Steps]:
        return chains(self.pair, self.captures, self.settings, "text")

    def load(self, device: str, dtype: str = "float32", drafter_device: str | None = None) -> Pair:
        """The same pair elsewhere."""
        return load_pair(self.checkpoint, self.target, device=device, dtype=dtype, drafter_device=drafter_device)

    def against(self, pair: Pair, label: str = "") -> dict[str, Any]:
        """The largest differences of another pair in float32; what is not allowed goes to `problems`."""
        _, gap = recorded_again(pair, self.captures)
        largest, share = dict.fromkeys(ROW_TOLERANCE, 0.0), 0.0
        for theirs, ours in zip(chains(pair, self.captures, self.settings, "text"), self.chains, strict=True):
            seen, other = compare_steps(theirs, ours)
            largest, share = {name: max(largest[name], seen[name]) for name in largest}, max(share, other)
        found = (
            [f"recorded states differ by {gap:.2g}, allowed {CAPTURE_TOLERANCE:g}"] if gap > CAPTURE_TOLERANCE else []
        )
        for name, allowed in ROW_TOLERANCE.items():
            if largest[name] > allowed:
                found.append(f"{name} differs by {largest[name]:.2g}, allowed {allowed:g}")
        if share > MAX_OTHER_TOKENS:
            found.append(f"{share:.2%} of a text's drafted tokens differ, allowed {MAX_OTHER_TOKENS:.2%}")
        self.problems += [label + line for line in found]
        return {"states": gap, "rows": largest, "other_tokens": share}


def difference(name: str, one: Tensor, other: Tensor) -> float:
    """The largest difference of a quantity, NaN at the same places counting as equal; infinite where only one is NaN."""
    a, b = one.double().cpu(), other.double().cpu()
    if bool((a.isnan() != b.isnan()).any()):
        return float("inf")
    gap = (a - b).abs()
    if name.startswith(RELATIVE):
        gap = gap / b.abs().clamp_min(1e-12)
    return float(gap.nan_to_num(0.0).max()) if gap.numel() else 0.0


def compare_steps(one: Steps, other: Steps) -> tuple[dict[str, float], float]:
    """The largest difference by group of ROW_TOLERANCE, and the share of drafted tokens that differ.

    For the text-fed chains, where a differing token does not change the steps after it.
    """
    largest = dict.fromkeys(ROW_TOLERANCE, 0.0)
    differing = total = 0
    for a, b in zip(one, other, strict=True):
        if a.keys() != b.keys():
            raise ValueError(f"only one side has {', '.join(sorted(a.keys() ^ b.keys()))}")
        for name in a:
            group = next((group for group in largest if name.startswith(group)), None)
            if group is not None:
                largest[group] = max(largest[group], difference(name, a[name], b[name]))
        differing += int((a["drafted"].cpu() != b["drafted"].cpu()).sum())
        total += a["drafted"].numel()
    return largest, differing / total


def figures(all_steps: Sequence[Steps]) -> dict[str, list[float]]:
    """Per step, over the anchors of all texts: growth, acceptance (joint) and the mean mass of every bucket."""
    out: dict[str, list[float]] = {"growth": [], "acceptance": [], **{f"mass {name}": [] for name in BUCKETS[:-1]}}
    accepted = [torch.ones(len(steps[0]["drafted"]), dtype=torch.bool) for steps in all_steps]
    for k in range(len(all_steps[0])):
        growth = torch.cat([(steps[k]["rms/carry"] / steps[0]["rms/carry"]).double().cpu() for steps in all_steps])
        out["growth"].append(float(growth.log().mean().exp()))
        for i, steps in enumerate(all_steps):
            accepted[i] &= (steps[k]["drafted"] == steps[k]["text"]).cpu()
        out["acceptance"].append(float(torch.cat(accepted).double().mean()))
        mass = torch.cat([steps[k]["mass"].double().mean((1, 2)).cpu() for steps in all_steps]).mean(0)
        for name, value in zip(BUCKETS, mass.tolist(), strict=True):
            if f"mass {name}" in out:
                out[f"mass {name}"].append(value)
    return out


def recorded_again(pair: Pair, captures: Sequence[Capture]) -> tuple[list[Capture], float]:
    """The texts recorded by this pair's target, and the largest difference to the given states (CAPTURE_TOLERANCE)."""
    again, largest = [], 0.0
    for old in captures:
        made = record(pair.target, old.token_ids.tolist(), sorted(old.boundaries), label=f"prompt {old.prompt_id}")
        pairs = [(made.final, old.final), *((made.boundaries[b], old.boundaries[b]) for b in old.boundaries)]
        for new_state, old_state in pairs:
            gap = (new_state.float() - old_state.float()).abs().amax(-1)
            largest = max(largest, float((gap / old_state.float().abs().amax(-1).clamp_min(1e-12)).max()))
        again.append(
            Capture(**{**vars(old), "final": made.final, "boundaries": made.boundaries, "rms": made.rms.float()})
        )
    return again, largest


def chains(pair: Pair, captures: Sequence[Capture], settings: Settings, feed: Feed) -> list[Steps]:
    return [Subject(pair, record, settings).clean(feed) for record in captures]
