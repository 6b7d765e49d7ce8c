"""Drafting another number of tokens each round: the bound of an oracle, and an early stop on the drafter's own probability.

Both take every request to pay for its own draft only, as at batch 1; in a larger batch a round lasts as long as its longest draft.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Int
from numpy.typing import NDArray

from driftscope import stats
from driftscope.figures.grids import put
from driftscope.planning.costs import BatchCost, CostModel
from driftscope.planning.rounds import Drafts
from driftscope.stats.intervals import Floats

THRESHOLDS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
_TRIALS = 20


def oracle(drafts: Drafts, costs: CostModel, cost: BatchCost, *, resamples: int = stats.RESAMPLES) -> dict[str, Any]:
    """`speed_up` if every round drafted the number of tokens, 0 included, that turns out best, knowing the outcome: no rule that
    chooses K can do better on these chains. `drafted`: how many it drafts a round."""
    seconds = _rounds(drafts, costs, cost)
    choice = best_choice(drafts, seconds)
    tokens, rounds = drafts.served_choice(choice)
    return _served(tokens, rounds, seconds, cost, resamples)


def best_choice(drafts: Drafts, seconds: Floats) -> Int[NDArray[np.int64], " chain"]:
    """The K of every anchor, no more than it accepts, that spends the least time a token over the whole walk.

    seconds: of a round that drafts 0, 1, .. tokens. The least ratio of time to tokens is that rate at which time minus rate times
    tokens can just be made 0. Source: Dinkelbach, On Nonlinear Fractional Programming (1967).
    """
    rate = float(seconds[0])
    choice = np.zeros(len(drafts.length), dtype=np.int64)
    for _ in range(_TRIALS):
        choice = np.concatenate([_least(drafts.length[part], seconds, rate) for part in drafts.by_prompt()])
        tokens, rounds = drafts.served_choice(choice)
        found = float((rounds @ seconds).sum() / tokens.sum())
        if abs(found - rate) <= 1e-12 * rate:
            break
        rate = found
    return choice


def _least(length: NDArray[np.int64], seconds: Floats, rate: float) -> NDArray[np.int64]:
    """From the last anchor to the first, the K that makes time - rate * tokens to the end least."""
    spent = np.zeros(len(length) + len(seconds) + 1)
    choice = np.zeros(len(length), dtype=np.int64)
    prices = seconds - rate * np.arange(1, len(seconds) + 1)
    for place in range(len(length) - 1, -1, -1):
        allowed = min(int(length[place]), len(seconds) - 1) + 1
        totals = prices[:allowed] + spent[place + 1 : place + 1 + allowed]
        choice[place] = int(totals.argmin())
        spent[place] = totals[choice[place]]
    return choice


def early_stop(
    drafts: Drafts, costs: CostModel, cost: BatchCost, *, resamples: int = stats.RESAMPLES
) -> list[dict[str, Any]]:
    """For each threshold, drafting up to the depth but no further than the first token with a probability below it, which is
    verified too: `speed_up` and the mean number of `drafted` tokens a round. Empty where no probabilities were stored, or the
    drafter makes all steps in one pass and so has nothing to stop."""
    if costs.one_pass or not np.isfinite(drafts.confidence).all():
        return []
    seconds = _rounds(drafts, costs, cost)
    found = []
    for threshold in THRESHOLDS:
        tokens, rounds = drafts.served_choice(stops(drafts.confidence, threshold))
        found.append({"threshold": threshold, **_served(tokens, rounds, seconds, cost, resamples)})
    return found


def stops(confidence: Floats, threshold: float) -> Int[NDArray[np.int64], " chain"]:
    """Tokens drafted from each anchor: up to the first below the threshold, which counts, or all of `confidence[chain, step]`."""
    below = confidence < threshold
    return np.where(below.any(1), below.argmax(1) + 1, confidence.shape[1]).astype(np.int64)


def _rounds(drafts: Drafts, costs: CostModel, cost: BatchCost) -> Floats:
    return np.array([costs.round(cost, drafted) for drafted in range(drafts.depth + 1)])


def _served(
    tokens: Floats, rounds: NDArray[np.int64], seconds: Floats, cost: BatchCost, resamples: int
) -> dict[str, Any]:
    count = rounds.sum(1)
    drafted = (rounds @ np.arange(rounds.shape[1])).astype(np.float64)
    found: dict[str, Any] = {"rounds": int(count.sum())}
    if count.sum() < stats.MIN_DENOMINATOR:
        return found
    # In plain forwards, so that the smallest denominator that counts is one of them.
    spent = rounds @ (seconds / cost.plain)
    put(found, "speed_up", stats.ratio_of_sums(tokens, spent, resamples=resamples))
    put(found, "drafted", stats.ratio_of_sums(drafted, count, resamples=resamples))
    return found
