"""Acceptance, growth and excess of variants, and what is left of them against another on the same prompts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from driftscope import stats
from driftscope.figures.grids import Grids, put
from driftscope.stats.intervals import Floats

GROWTH = "sum/log_growth"
EXCESS = "excess/self_generated"
_LENGTHS = ("served", "anchor_mean")
Found = dict[str, dict[str, Any]]


def levels(
    steps: pd.DataFrame,
    heads: pd.DataFrame,
    names: Sequence[str],
    prompts: Sequence[str],
    depth: int,
    *,
    resamples: int,
) -> Found:
    """Of each variant: acceptance `length` (`anchor_mean` and `served`, without bonus tokens), and at step `depth` the
    `growth` of the carry's RMS since step 1 and the self-generated `excess`; with the number of `prompts` and `anchors`."""
    measured = _Measured(steps, heads, names, prompts, depth)
    found: Found = {name: {"length": {}} for name in names}
    for kind in _LENGTHS:
        share = stats.ratio_of_sums(*measured.lengths[kind], resamples=resamples)
        for place, name in enumerate(names):
            put(found[name]["length"], kind, share, place)
    growth = stats.bca(measured.growth, resamples=resamples).map(np.exp)
    excess = stats.bca(measured.excess, resamples=resamples)
    for place, name in enumerate(names):
        put(found[name], "growth", growth, place)
        put(found[name], "excess", excess, place)
        anchors = measured.anchors[:, place]
        found[name] |= {"prompts": int((anchors > 0).sum()), "anchors": int(np.nansum(anchors))}
    return found


def kept(
    steps: pd.DataFrame,
    heads: pd.DataFrame,
    names: Sequence[str],
    reference: str,
    prompts: Sequence[str],
    depth: int,
    *,
    resamples: int,
) -> Found:
    """Each variant against `reference`, over the prompts that have both (`paired`): `length_kept` as a share of the lengths,
    `growth_kept` as a ratio of growths at step `depth`, `excess_change` as a difference there, and `excess_kept` as a share
    where the interval of the reference's excess on these prompts does not hold 0."""
    own, base = (_Measured(steps, heads, which, prompts, depth) for which in (names, [reference]))
    found: Found = {name: {"length_kept": {}} for name in names}
    for kind in _LENGTHS:
        share = stats.relative_ratio(*own.lengths[kind], *base.lengths[kind], resamples=resamples)
        for place, name in enumerate(names):
            put(found[name]["length_kept"], kind, share, place)
    growth = stats.paired_difference(own.growth, base.growth, resamples=resamples).map(np.exp)
    change = stats.paired_difference(own.excess, base.excess, resamples=resamples)
    both = np.isfinite(own.excess) & np.isfinite(base.excess)
    beside = stats.bca(np.where(both, base.excess, np.nan), resamples=resamples)
    ones = np.where(both, 1.0, 0.0)
    excess = stats.relative_ratio(own.excess, ones, base.excess, ones, minimum=1, resamples=resamples)
    for place, name in enumerate(names):
        put(found[name], "growth_kept", growth, place)
        put(found[name], "excess_change", change, place)
        found[name]["paired"] = int(both[:, place].sum())
        there = beside.at(place)
        if there is not None and there.low is not None and there.high is not None and there.low * there.high > 0:
            put(found[name], "excess_kept", excess, place)
    return found


def reasons(conditions: pd.DataFrame, name: str) -> dict[str, int]:
    """Why prompts have no rows of a condition -> how many."""
    rows = conditions[(conditions["variant"] == name) & conditions["left_out"].notna()]
    return {str(reason): int(count) for reason, count in rows["left_out"].astype(str).value_counts().items()}


class _Measured:
    """Arrays [prompt, variant]: intervals of all variants in one call cost little more than those of one."""

    lengths: Mapping[str, tuple[Floats, Floats]]
    """By kind: accepted tokens, and what they are divided by."""
    anchors: Floats
    growth: Floats
    excess: Floats

    def __init__(
        self, steps: pd.DataFrame, heads: pd.DataFrame, names: Sequence[str], prompts: Sequence[str], depth: int
    ) -> None:
        grids, by_head = Grids(steps, prompts, depth), Grids(heads, prompts, depth)
        parts = [grids.lengths(name) for name in names]
        self.lengths = {
            kind: (_beside(part[kind][0] for part in parts), _beside(part[kind][1] for part in parts))
            for kind in _LENGTHS
        }
        keys = [(name, "drafted") for name in names]
        self.anchors = _beside(grids.sum("anchors", key)[:, 0] for key in keys)
        self.growth = _beside(grids.mean(GROWTH, key)[:, -1] for key in keys)
        self.excess = _beside(by_head.mean(EXCESS, key)[:, -1] for key in keys)


def _beside(columns: Any) -> Floats:
    return np.stack(list(columns), axis=-1)
