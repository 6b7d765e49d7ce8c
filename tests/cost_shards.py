"""Rows of the probe `cost` for fake runs: chains whose parts cost known numbers of tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from driftscope.chain.patches import FACTORS, OWN, REAL, patches
from driftscope.chain.rejections import rejections

ANCHORS, DEPTH = 20, 4
BASE = 1
"""Accepted tokens of an undisturbed chain."""


def cost_shards(costs: Mapping[str, float], *, unknown: float = 0.0, seed: int = 0) -> Callable[[str, int], Any]:
    """`shards` for a drafter that loses one token through a factor at the share `costs[factor]` of its anchors; at the share
    `unknown`, and where nothing costs, the token that ends a chain is outside the draft vocabulary."""

    def made(prompt: str, number: int) -> dict[str, Any]:
        rng = np.random.default_rng([seed, number])
        loses = {factor: rng.random(ANCHORS) < costs.get(factor, 0.0) for factor in FACTORS}
        right = {}
        for patch in patches():
            gained = sum(loses[factor] & (getattr(patch, factor) == REAL) for factor in FACTORS)
            right[patch.name] = np.arange(DEPTH) < (BASE + np.asarray(gained))[:, None]
        known = np.ones((ANCHORS, DEPTH), bool)
        known[rng.random(ANCHORS) < unknown] = False
        ends = rejections(right, known, np.zeros((ANCHORS, DEPTH), bool))
        anchor = np.arange(9, 9 + ANCHORS)
        frames = [
            pd.DataFrame(
                {
                    "variant": f"cost/{name}",
                    "feed": "text",
                    "prompt": prompt,
                    "anchor": np.repeat(anchor, DEPTH),
                    "step": np.tile(np.arange(1, DEPTH + 1), ANCHORS),
                    "loop": False,
                    "near_tie": False,
                    "drafted": 1,
                    "text": 1,
                    "match": match.ravel(),
                    "accepted": match.ravel(),
                }
            )
            for name, match in right.items()
        ]
        assert OWN in right
        told = pd.DataFrame(
            {
                "prompt": prompt,
                "anchor": anchor,
                "loop": False,
                "step": ends.step,
                "reason": ends.reason,
                **{f"mends_{factor}": mends for factor, mends in ends.mended.items()},
                "gained": ends.gained,
                "tie": False,
            }
        )
        return {"cost": {"anchors": pd.concat(frames, ignore_index=True), "rejections": told}}

    return made
