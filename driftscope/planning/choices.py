"""Speed-up over plain decoding for every number of drafted tokens, and the best of them, at one batch size.

A round that drafts K tokens serves L(K) + 1 of them, L being the served length without the bonus token, in the time of K drafter
steps and one forward of the target over K + 1 rows; plain decoding serves one in a forward over one row. So
speed-up = (L(K) + 1) * plain / round(K). Costs are held fixed: intervals are those of the served length, over prompts.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from driftscope import stats
from driftscope.figures.grids import put
from driftscope.planning.costs import BatchCost, CostModel
from driftscope.planning.rounds import Drafts
from driftscope.stats.contrasts import contrasts, ratio
from driftscope.stats.intervals import Floats


def served_lengths(drafts: Drafts, *, resamples: int = stats.RESAMPLES) -> list[dict[str, Any]]:
    """`served`: accepted tokens a round without the bonus token, for K = 1 .. depth, with the number of `rounds`."""
    found: list[dict[str, Any]] = []
    for drafted in range(1, drafts.depth + 1):
        total, rounds = drafts.served(drafted)
        entry: dict[str, Any] = {"k": drafted, "rounds": int(rounds.sum())}
        put(entry, "served", stats.ratio_of_sums(total, rounds, resamples=resamples))
        found.append(entry)
    return found


def _speed_up(factor: float, length: Floats) -> Floats:
    """Tokens of a round, the bonus token with them, times plain forwards a round."""
    return (length + 1) * factor


def choices(drafts: Drafts, costs: CostModel, cost: BatchCost, *, resamples: int = stats.RESAMPLES) -> dict[str, Any]:
    """`choices`: of every K its `speed_up`, `round` seconds, `break_even_length` (the served length at which it is 1) and
    `break_even_drafter` (the drafter step, in plain forwards, at which it would be 1; absent where no drafter is fast enough).
    `best`: the K with the largest speed-up, 0 where none is above 1, and the K that are `alike`: the 95% interval of the paired
    difference to the best holds 0. Raises DriftscopeError where the costs lack a K."""
    entries: list[dict[str, Any]] = []
    walks, factors = [], []
    for drafted in range(1, drafts.depth + 1):
        total, rounds = drafts.served(drafted)
        seconds = costs.round(cost, drafted)
        factor = cost.plain / seconds
        entry: dict[str, Any] = {"k": drafted, "round": seconds, "break_even_length": seconds / cost.plain - 1}
        served = stats.ratio_of_sums(total, rounds, resamples=resamples)
        put(entry, "speed_up", served.map(partial(_speed_up, factor)))
        if np.isfinite(served.mean):
            rest = (float(served.mean) + 1) * cost.plain - costs.target_rows(cost, drafted + 1) - cost.overhead
            steps = 1 if costs.one_pass else drafted
            if rest > 0:
                entry["break_even_drafter"] = rest / steps / cost.plain
        entries.append(entry)
        walks.append((total + rounds, rounds))
        factors.append(factor)
    return {"choices": entries, **_best(entries, walks, factors, resamples)}


def _best(entries: list[dict[str, Any]], walks: list[Any], factors: list[float], resamples: int) -> dict[str, Any]:
    measured = [place for place, entry in enumerate(entries) if "speed_up" in entry]
    if not measured:
        return {}
    top = max(measured, key=lambda place: entries[place]["speed_up"]["mean"])
    weights = np.zeros((len(measured), len(entries)))
    for row, place in enumerate(measured):
        weights[row, top] += factors[top]
        weights[row, place] -= factors[place]
    difference = contrasts(walks, weights, ratio, resamples=resamples)
    alike = [
        entries[place]["k"]
        for row, place in enumerate(measured)
        if place != top and difference.low[row] <= 0 <= difference.high[row]
    ]
    best = entries[top]
    worth = best["speed_up"]["mean"] > 1
    return {"best": {"k": best["k"] if worth else 0, "speed_up": best["speed_up"], "of_k": best["k"], "alike": alike}}
