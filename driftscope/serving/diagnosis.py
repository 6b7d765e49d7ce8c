"""From counters and readings to an answer: is it what the walk serves, and if not, which reading predicts it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import log
from typing import Literal

import numpy as np

from driftscope.errors import RunError
from driftscope.from_engines.counters.model import Counters
from driftscope.serving.reading import Reading
from driftscope.stats.intervals import MIN_DENOMINATOR
from driftscope.stats.serving import (
    Distance,
    Figures,
    Floats,
    distance_over_same_prompts,
    distance_over_traffic,
    drafts_needed,
    traffic_covariance,
)
from driftscope.stats.walks import Walks

Outcome = Literal["same", "less", "more", "cannot tell"]
ALPHA = 0.01
"""Chance of calling a sound engine wrong, and p below which a reading is excluded."""
TIED = log(20)
"""Readings whose likelihood is within a factor of 20 of the best one are not told apart."""
FITS = 0.05
"""p from which on a reading fits well enough to be named: the right one may not be among them."""
LOSS = 0.1
"""Share of the accepted length that must not be lost unseen."""
_SHIFTED = 2.0
"""Standard deviations from which on a position is said to differ."""
_ENDLESS = 1e12


@dataclass(frozen=True)
class Traffic:
    """What the engine answered."""

    same_prompts: bool = False
    """The run's prompts, once each, greedily."""
    alike: bool = False
    """Prompts of the same kinds in the same shares as the run's."""
    max_tokens: int | None = None
    """The engine's limit of an answer."""
    changed: float = 0.0
    """Share of the run's positions that are near ties."""


@dataclass(frozen=True)
class Ranked:
    """One reading against the counters."""

    reading: Reading
    shares: tuple[float, ...] | None
    """Predicted share of rounds that accept at least 1, 2, ... tokens; None where it was not walked."""
    length: float | None = None
    p: float | None = None
    log_likelihood: float | None = None
    """Against the best one, which has 0."""
    exact: bool = False
    """Of the very prompts: every counter is one that it allows, the number of drafts included."""

    @property
    def excluded(self) -> bool:
        """Whether the counters contradict it."""
        return self.p is not None and self.p < ALPHA


@dataclass(frozen=True)
class Diagnosis:
    """The answer."""

    counters: Counters
    """Up to the deepest position that is compared."""
    traffic: Traffic
    outcome: Outcome
    declared: Ranked
    ranked: tuple[Ranked, ...]
    """Walked readings, the likeliest first, the declared one among them."""
    not_walked: tuple[Reading, ...]
    position: int | None
    """The first position that differs; None where nothing does or positions are not known."""
    tied: tuple[Ranked, ...]
    """The likeliest readings that the counters do not tell apart, none of them excluded; empty unless something differs."""
    p: float
    exact: bool = False
    """Every counter lies within what the same texts allow."""
    more_drafts: int | None = None
    """Of `cannot tell`: so many would do; None where none would."""
    low: tuple[float, ...] = ()
    """95% ends of what the declared walk predicts for this engine, share by position (of a mean: the length)."""
    high: tuple[float, ...] = ()

    @property
    def named(self) -> Ranked | None:
        """The reading that the counters name: the likeliest, where all that tie with it change the same switch."""
        switches = {part.reading.switch for part in self.tied}
        fits = bool(self.tied) and (self.tied[0].p or 0.0) >= FITS
        return self.tied[0] if fits and len(switches) == 1 else None

    @property
    def to_the_digit(self) -> tuple[Ranked, ...]:
        """Of the very prompts: other readings that predict every single counter, where the declared one does not."""
        return () if self.exact else tuple(part for part in self.ranked if part.exact)

    @property
    def exit_code(self) -> int:
        """0 the walk's, 1 another, 2 too little to tell."""
        return {"same": 0, "less": 1, "more": 1, "cannot tell": 2}[self.outcome]


def diagnose(counters: Counters, readings: Sequence[Reading], traffic: Traffic | None = None) -> Diagnosis:
    """Compare counters with every reading. readings[0] is the declared one.

    Raises RunError where the walk has no round, or fewer steps than a mean is over.
    """
    traffic = traffic or Traffic()
    declared = readings[0].walks
    assert declared is not None
    if counters.per_position is None and counters.tokens > declared.depth:
        raise RunError(
            f"the engine's mean is over {counters.tokens} drafted tokens a round, the run walks {declared.depth}: probe again with"
            f" --depth {counters.tokens}"
        )
    counters = counters.up_to(declared.depth)
    k = counters.tokens
    engine = engine_figures(counters)
    size = _measurable(engine)
    engine = engine.first(size)
    ranked = [_ranked(part, engine, k, traffic, counters, size) for part in readings if part.walks is not None]
    first = ranked[0]
    assert first.p is not None
    distance = _distance(declared, engine, k, traffic, counters, size)
    best = max(part.log_likelihood for part in ranked if part.log_likelihood is not None)
    ranked = [replace(part, log_likelihood=(part.log_likelihood or 0.0) - best) for part in ranked]
    first = ranked[0]
    ordered = sorted(ranked, key=lambda part: -(part.log_likelihood or 0.0))
    outcome, more = _outcome(first, distance, engine, declared, k, traffic, counters)
    tied: list[Ranked] = []
    if outcome in ("less", "more"):
        open_ones = [part for part in ordered if not part.excluded]
        top = open_ones[0].log_likelihood if open_ones else None
        tied = [part for part in open_ones if top is not None and (part.log_likelihood or 0.0) >= top - TIED]
        # What predicts every single counter is not tied with what does not.
        tied = [part for part in tied if part.exact] or tied
    low, high = _interval(first, distance, engine)
    return Diagnosis(
        counters=counters,
        traffic=traffic,
        outcome=outcome,
        declared=first,
        ranked=tuple(ordered),
        not_walked=tuple(part for part in readings if part.walks is None),
        position=_position(distance, outcome) if engine.by_position else None,
        tied=tuple(tied),
        p=first.p or 0.0,
        exact=first.exact,
        more_drafts=more,
        low=low,
        high=high,
    )


def engine_figures(counters: Counters) -> Figures:
    """Accepted of reached, by position where they are known."""
    return Figures.of(engine_counts(counters), counters.per_position is not None)


def engine_counts(counters: Counters) -> Floats:
    """[k + 1]: drafts, and those that accepted at least 1, 2, ... k tokens; of a mean, k times the mean share."""
    if counters.per_position is None:
        return np.array([counters.drafts, *[counters.accepted / counters.tokens] * counters.tokens], dtype=np.float64)
    return np.array([counters.drafts, *counters.per_position], dtype=np.float64)


def _measurable(engine: Figures) -> int:
    """Positions that enough rounds reached."""
    few = np.flatnonzero(engine.reached < MIN_DENOMINATOR)
    return max(int(few[0]) if len(few) else len(engine.reached), 1)


def _distance(walks: Walks, engine: Figures, k: int, traffic: Traffic, counters: Counters, size: int) -> Distance:
    if traffic.same_prompts:
        low, high = (part.sum(0) for part in walks.bounds(k, traffic.max_tokens))
        counts, by_position = engine_counts(counters), engine.by_position
        return distance_over_same_prompts(counts, low, high, by_position, size, traffic.changed, counters.rounding)
    walk = Figures.of(walks.counts(k), engine.by_position).first(size)
    kinds = [prompt.category for prompt in walks.prompts]
    return distance_over_traffic(engine, walk, kinds, requests=counters.requests, alike=traffic.alike)


def _ranked(reading: Reading, engine: Figures, k: int, traffic: Traffic, counters: Counters, size: int) -> Ranked:
    walks = reading.walks
    assert walks is not None
    total = walks.bounds(k, traffic.max_tokens)[0].sum(0) if traffic.same_prompts else walks.counts(k).sum(0)
    if not total[0]:
        raise RunError("the run's texts hold no whole round: they are too short for so many drafted tokens")
    shares = tuple((total[1:] / total[0]).tolist())
    distance = _distance(walks, engine, k, traffic, counters, size)
    exact = traffic.same_prompts and _exact(walks, k, traffic, counters)
    return Ranked(reading, shares, sum(shares), distance.p, distance.log_likelihood, exact)


def _exact(walks: Walks, k: int, traffic: Traffic, counters: Counters) -> bool:
    low, high = (part.sum(0) for part in walks.bounds(k, traffic.max_tokens))
    counts = engine_counts(counters)
    if counters.per_position is None:
        return bool(counts[0] == low[0] and low[1:].sum() <= counters.accepted <= high[1:].sum())
    return bool(counts[0] == low[0] and (counts >= low).all() and (counts <= high).all())


def _outcome(
    declared: Ranked, distance: Distance, engine: Figures, walks: Walks, k: int, traffic: Traffic, counters: Counters
) -> tuple[Outcome, int | None]:
    assert declared.length is not None
    if declared.excluded:
        return ("less" if counters.length < declared.length else "more"), None
    ones, size = np.ones(len(distance.difference)), _logit_of_loss(engine)
    here = distance.covariance
    if traffic.same_prompts:
        factor = drafts_needed([here, here], ones, size)
    else:
        endless = Figures(engine.accepted * _ENDLESS, engine.reached * _ENDLESS, engine.by_position)
        walk = Figures.of(walks.counts(k), engine.by_position).first(len(ones))
        kinds = [prompt.category for prompt in walks.prompts]
        factor = drafts_needed([here, traffic_covariance(endless, walk, kinds, alike=traffic.alike)], ones, size)
    if factor == 1.0:
        return "same", None
    return "cannot tell", None if factor is None else int(np.ceil((factor - 1) * counters.drafts / 100) * 100)


def _logit_of_loss(engine: Figures) -> float:
    """By how much all logits fall where a LOSS of the length is lost."""
    before = _length(engine.logit, engine.by_position)
    low, high = 0.0, 10.0
    for _ in range(60):
        middle = (low + high) / 2
        lost = 1 - _length(engine.logit - middle, engine.by_position) / before
        low, high = (middle, high) if lost < LOSS else (low, middle)
    return high


def _length(logits: Floats, by_position: bool) -> float:
    share = 1 / (1 + np.exp(-logits))
    return float(np.cumprod(share).sum() if by_position else share.sum())


def _position(distance: Distance, outcome: Outcome) -> int | None:
    if outcome not in ("less", "more"):
        return None
    signed = distance.z if outcome == "more" else -distance.z
    beyond = np.flatnonzero(signed >= _SHIFTED)
    return int(beyond[0] if len(beyond) else signed.argmax()) + 1


def _interval(declared: Ranked, distance: Distance, engine: Figures) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Where 95% of engines' conditional shares would lie, multiplied up to shares of all rounds."""
    center = engine.logit - distance.difference
    width = 1.96 * np.sqrt(np.diag(distance.covariance))
    ends = []
    for sign in (-1, 1):
        share = 1 / (1 + np.exp(-(center + sign * width)))
        before = np.concatenate([[1.0], (declared.shares or ())[: len(share) - 1]]) if engine.by_position else 1.0
        ends.append(tuple((share * before).tolist()))
    return ends[0], ends[1]
