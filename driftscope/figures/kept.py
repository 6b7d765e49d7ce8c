"""Acceptance, growth and excess of one variant, and what is left of them against another on the same prompts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from driftscope import stats
from driftscope.figures.grids import grid, lengths, means, put, variant

GROWTH = "sum/log_growth"
EXCESS = "excess/self_generated"


def levels(
    steps: pd.DataFrame, heads: pd.DataFrame, name: str, prompts: Sequence[str], depth: int, *, resamples: int
) -> dict[str, Any]:
    """Of one variant: acceptance `length` (`anchor_mean` and `served`, without bonus tokens), and at step `depth` the
    `growth` of the carry's RMS since step 1 and the self-generated `excess`; with the number of `prompts` and `anchors`."""
    rows = variant(steps, name)
    found: dict[str, Any] = {"length": {}}
    for kind, parts in lengths(rows, prompts, depth).items():
        put(found["length"], kind, stats.ratio_of_sums(*parts, resamples=resamples))
    put(found, "growth", stats.bca(means(rows, GROWTH, prompts, depth)[:, -1], resamples=resamples).map(np.exp))
    put(found, "excess", stats.bca(means(variant(heads, name), EXCESS, prompts, depth)[:, -1], resamples=resamples))
    anchors = grid(rows, "anchors", prompts, depth)[:, 0]
    found["prompts"], found["anchors"] = int((anchors > 0).sum()), int(np.nansum(anchors))
    return found


def kept(
    steps: pd.DataFrame,
    heads: pd.DataFrame,
    name: str,
    reference: str,
    prompts: Sequence[str],
    depth: int,
    *,
    resamples: int,
) -> dict[str, Any]:
    """One variant against `reference`, over the prompts that have both (`paired`): `length_kept` as a share of the lengths,
    `growth_kept` as a ratio of growths at step `depth`, `excess_change` as a difference there, and `excess_kept` as a share
    where the interval of the reference's excess on these prompts does not hold 0."""
    rows, base = variant(steps, name), variant(steps, reference)
    found: dict[str, Any] = {"length_kept": {}}
    basis = lengths(base, prompts, depth)
    for kind, parts in lengths(rows, prompts, depth).items():
        put(found["length_kept"], kind, stats.relative_ratio(*parts, *basis[kind], resamples=resamples))
    grown, grown_base = (means(part, GROWTH, prompts, depth)[:, -1] for part in (rows, base))
    put(found, "growth_kept", stats.paired_difference(grown, grown_base, resamples=resamples).map(np.exp))
    excess, excess_base = (means(variant(heads, part), EXCESS, prompts, depth)[:, -1] for part in (name, reference))
    put(found, "excess_change", stats.paired_difference(excess, excess_base, resamples=resamples))
    both = np.isfinite(excess) & np.isfinite(excess_base)
    found["paired"] = int(both.sum())
    own = stats.bca(excess_base[both], resamples=resamples).at()
    if own is not None and own.low is not None and own.high is not None and own.low * own.high > 0:
        ones = np.ones(found["paired"])
        share = stats.relative_ratio(excess[both], ones, excess_base[both], ones, minimum=1, resamples=resamples)
        put(found, "excess_kept", share)
    return found


def reasons(conditions: pd.DataFrame, name: str) -> dict[str, int]:
    """Why prompts have no rows of a condition -> how many."""
    rows = conditions[(conditions["variant"] == name) & conditions["left_out"].notna()]
    return {str(reason): int(count) for reason, count in rows["left_out"].astype(str).value_counts().items()}
