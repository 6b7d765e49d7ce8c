"""Rows of the probe `cost` without a model, with a planted cost by path."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
import pandas as pd

from driftscope.chain.patches import FACTORS, OWN, REAL, Patch, patches
from driftscope.chain.rejections import rejections
from driftscope.runs.schema import tables as all_tables


@dataclass(frozen=True)
class FakeCost:
    """What a token under all own has for a chance of being right, and what every factor adds to it from step 2 on."""

    chance: float = 0.6
    state: float = 0.15
    pattern: float = 0.05
    values: float = 0.0
    split: bool = False
    block: bool = False
    """A drafter of all steps at once: only the two ends, `state` + `pattern` + `values` apart."""
    anchors: int = 16
    depth: int = 4
    coverage: float = 0.95
    ties: float = 0.02
    loops: int = 2
    """Anchors at the end of each prompt that lie in a loop."""
    seed: int = 0

    @property
    def patches(self) -> tuple[Patch, ...]:
        wanted = patches(self.split)
        return tuple(patch for patch in wanted if patch.name in (OWN, REAL)) if self.block else wanted


def cost_shard(fake: FakeCost, prompt: str, number: int) -> dict[str, pd.DataFrame]:
    """The tables of one prompt, as the probe makes them."""
    rng = np.random.default_rng([fake.seed, number])
    shape = (fake.anchors, fake.depth)
    # One draw decides for all patches, so that a better chance never loses a token.
    draw, known, undecided = rng.random(shape), rng.random(shape) < fake.coverage, rng.random(shape) < fake.ties
    later = np.arange(fake.depth) > 0
    right = {}
    for patch in fake.patches:
        gain = sum(getattr(fake, name) * (getattr(patch, name) == REAL) for name in FACTORS)
        gain += fake.state / 2 * (patch.state == "resized")
        right[patch.name] = (draw < fake.chance + gain * later) & known
    found = rejections(right, known, undecided)
    loop = np.arange(fake.anchors) >= fake.anchors - fake.loops
    anchor, size = 9 + np.arange(fake.anchors), fake.anchors * fake.depth
    rows = [
        pd.DataFrame(
            {
                "variant": f"cost/{name}",
                "feed": "text",
                "prompt": prompt,
                "anchor": np.repeat(anchor, fake.depth),
                "step": np.tile(np.arange(1, fake.depth + 1), fake.anchors),
                "loop": np.repeat(loop, fake.depth),
                "near_tie": False,
                "drafted": np.where(match.ravel(), 7, 8),
                "text": np.full(size, 7),
                "match": match.ravel(),
                "accepted": np.logical_and.accumulate(match, 1).ravel(),
            }
        )
        for name, match in right.items()
    ]
    rejected = found.step > 0
    outside = np.array([reason == "vocabulary" for reason in found.reason])
    ends = pd.DataFrame(
        {
            "prompt": prompt,
            "anchor": anchor,
            "loop": loop,
            "step": pd.array(found.step, "Int16"),
            "reason": found.reason,
            "rank": pd.array(np.full(fake.anchors, 3), "Int32"),
            "prob": np.where(rejected & ~outside, 0.2, np.nan),
            "target_prob": np.where(rejected, 0.5, np.nan),
            "gained": found.gained,
            "tie": False,
        }
    )
    for name, mends in found.mended.items():
        ends[f"mends_{name}"] = pd.array(mends, "boolean")
        ends.loc[~rejected, f"mends_{name}"] = pd.NA
    ends.loc[~rejected, "step"] = pd.NA
    ends.loc[~rejected | outside, "rank"] = pd.NA
    kinds = ["clean" if patch.name == OWN else "intervention" for patch in fake.patches]
    told = [json.dumps({"anchors": fake.anchors, "depth": None}) for _ in fake.patches]
    variants = {"variant": [f"cost/{patch.name}" for patch in fake.patches], "probe": "cost", "kind": kinds}
    return {
        "anchors": pd.concat(rows, ignore_index=True),
        "rejections": ends,
        "variants": pd.DataFrame({**variants, "parameters": told}),
    }


def told(fake: FakeCost, prompts: int = 14) -> dict[str, pd.DataFrame]:
    """The tables of prompts p00, p01, .., as a run returns them."""
    parts = [cost_shard(fake, f"p{number:02d}", number) for number in range(prompts)]
    joined = {name: pd.concat([part[name] for part in parts], ignore_index=True) for name in parts[0]}
    return {name: all_tables()[name].frame(all_tables()[name].conform(rows)) for name, rows in joined.items()}
