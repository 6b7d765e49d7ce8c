"""The finer grid around a value that won a round: where one value was found, its neighbours must be asked too.

Only a winner is refined, so that a sound drafter costs nothing more.
"""

from __future__ import annotations

import math
from collections.abc import Collection

from driftscope.audit.hypotheses import Hypothesis, TargetFacts, aux_hypothesis
from driftscope.audit.setting import Setting
from driftscope.audit.spelled import spelled

STANDARD_THETAS = (10000.0, 50000.0, 100000.0, 150000.0, 500000.0, 1000000.0, 5000000.0, 10000000.0)
"""Rope bases of published models: Llama 2, Kimi, SmolLM2, gpt-oss, Llama 3, Qwen, and the long ones."""


def refinements(
    winner: Hypothesis, setting: Setting, target: TargetFacts, tried: Collection[Hypothesis]
) -> list[Hypothesis]:
    """Neighbours of a winner's value that were not tried: standard rope bases, or each aux boundary one up and one down.

    setting: the one that the winner is an alternative to.
    """
    if winner.switch == "rope.theta":
        return _thetas(winner, setting, tried)
    if winner.switch == "aux_boundaries":
        return _boundaries(winner, setting, target, tried)
    return []


def _thetas(winner: Hypothesis, setting: Setting, tried: Collection[Hypothesis]) -> list[Hypothesis]:
    known = [h.changes["rope.theta"] for h in tried if "rope.theta" in h.changes] + [setting.config.rope.theta]
    found = []
    for theta in STANDARD_THETAS:
        if not any(math.isclose(theta, other) for other in known):
            word = f"{theta:g} (standard)"
            found.append(Hypothesis(winner.switch, winner.declared, word, winner.code, {"rope.theta": theta}))
    return found


def _boundaries(
    winner: Hypothesis, setting: Setting, target: TargetFacts, tried: Collection[Hypothesis]
) -> list[Hypothesis]:
    centre = winner.changes["aux_boundaries"]
    known = {h.changes.get("aux_boundaries") for h in tried} | {setting.config.aux_boundaries}
    sets = [(*centre[:slot], centre[slot] + by, *centre[slot + 1 :]) for slot in range(len(centre)) for by in (-1, 1)]
    sets += [tuple(b + by for b in centre) for by in (-1, 1)]
    return [
        aux_hypothesis(setting, found, f"{spelled(found)} (neighbour)")
        for found in sets
        if found not in known and min(found) >= 0 and max(found) <= target.num_layers and len(set(found)) == len(found)
    ]
