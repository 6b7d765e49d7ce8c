"""What drift costs, in accepted tokens, and by which path: figures of the probe `cost`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from driftscope import stats
from driftscope.chain.patches import OWN, REAL
from driftscope.figures.cost_sums import PREFIX, CostSums, cost_sums
from driftscope.figures.effects import LENGTHS, ORDERS, effects
from driftscope.figures.grids import put
from driftscope.figures.rejections import rejection_figures
from driftscope.stats.contrasts import contrasts, ratio
from driftscope.stats.intervals import Floats

if TYPE_CHECKING:
    from driftscope.runs.folder import RunFolder

PROBE = "cost"
COLUMNS = ("variant", "prompt", "anchor", "step", "loop", "match")
"""Of `anchors`: what the figures read."""


def run_cost(run: RunFolder, depth: int | None = None, *, resamples: int = stats.RESAMPLES) -> dict[str, Any]:
    """`drift_cost` and `rejections` of a run, as in the summary, at `depth` or as deep as they were measured; {} where they were
    not."""
    if PROBE not in run.probes:
        return {}
    categories = {prompt.id: prompt.category for prompt in run.info.prompts}
    found: dict[str, Any] = {}
    cost = cost_figures(run.table("anchors", PROBE, columns=COLUMNS), categories, depth, resamples=resamples)
    if cost:
        found["drift_cost"] = cost
        ends = rejection_figures(run.table("rejections", PROBE), cost["depth"], categories, resamples=resamples)
        if ends:
            found["rejections"] = ends
    return found


def cost_figures(
    anchors: pd.DataFrame,
    categories: Mapping[str, str | None] | None = None,
    depth: int | None = None,
    *,
    resamples: int = stats.RESAMPLES,
) -> dict[str, Any]:
    """From the `anchors` rows of the probe; {} without any. Tokens at `depth` drafted ones, loops left out.

    `actual`: accepted as it drafts; `undrifted`: with real rows; `cost`: their difference, and `share` of the undrifted; for
    `state`, `pattern` and `values` the effect of making it real `alone`, `last` and its `shapley` value, which sum to the cost;
    `state_rms` and `state_direction` where the state was split; no factors for a drafter of all steps at once. `served`: the
    first three along the served walk, where anchors are consecutive, with the actual walk's `rounds`. `by_depth`: the same for
    every K. `steps`: the same of the share that is right at a step among the `alive` chains, undisturbed ones whose earlier
    tokens are right. `by_category`: by category of the prompts.
    """
    sums = cost_sums(anchors, depth)
    if sums is None:
        return {}
    found = _whole(sums, resamples)
    found["by_depth"] = [
        {"depth": k + 1, **entry} for k, entry in enumerate(_of_lengths(sums, range(sums.depth), resamples))
    ]
    found["steps"] = _steps(sums, resamples)
    groups = sorted({name for name in (categories or {}).values() if name})
    by_category = {}
    for group in groups:
        part = sums.only({prompt for prompt, name in (categories or {}).items() if name == group})
        if part.prompts:
            by_category[group] = _whole(part, resamples)
    if by_category:
        found["by_category"] = by_category
    return found


def cost_interval(anchors: pd.DataFrame, depth: int | None = None) -> stats.Interval | None:
    """`cost` of `cost_figures` and nothing else, for looking at while it is measured; rows of other patches do no harm."""
    ends = anchors[anchors["variant"].astype(str).isin([f"{PREFIX}{name}" for name in (OWN, REAL)])]
    sums = cost_sums(ends, depth)
    if sums is None:
        return None
    own, real = (sums.lengths[:, sums.patches.index(name), -1:] for name in (OWN, REAL))
    # As _effects has it, so that the last look equals the figure bit for bit.
    return stats.ratio_of_sums(
        ORDERS * (real - own), ORDERS * sums.anchors[:, None], minimum=ORDERS * stats.MIN_DENOMINATOR
    ).at(0)


def _whole(sums: CostSums, resamples: int) -> dict[str, Any]:
    """The figures at the depth of the sums."""
    found = _of_lengths(sums, [sums.depth - 1], resamples)[0]
    if sums.consecutive:
        served = _served(sums, resamples)
        if served:
            found["served"] = served
    counts = {"anchors": int(sums.anchors.sum()), "prompts": int((sums.anchors > 0).sum()), "depth": sums.depth}
    return {**found, **counts}


def _of_lengths(sums: CostSums, places: Sequence[int], resamples: int) -> list[dict[str, Any]]:
    lengths, anchors = sums.lengths[..., list(places)], sums.anchors[:, None]
    found = _effects(sums.patches, lengths, np.broadcast_to(anchors, (len(anchors), len(places))), resamples)
    own, real = (lengths[:, sums.patches.index(name)] for name in (OWN, REAL))
    share = stats.ratio_of_sums(real - own, real, resamples=resamples)
    for place, entry in enumerate(found):
        put(entry, "share", share, place)
    return found


def _steps(sums: CostSums, resamples: int) -> list[dict[str, Any]]:
    """Of the tokens of living chains, step by step."""
    alive = sums.by_prompt(sums.alive)
    right = sums.by_prompt((sums.right & sums.alive).transpose(1, 0, 2))
    found = _effects(sums.patches, right, alive, resamples)
    return [{"step": k + 1, "alive": int(alive[:, k].sum()), **entry} for k, entry in enumerate(found)]


def _effects(patches: Sequence[str], values: Floats, units: Floats, resamples: int) -> list[dict[str, Any]]:
    """An entry for every column of `values[prompt, patch, column]` over `units[prompt, column]`."""
    wanted = effects(patches)
    sums = np.einsum("fp,npk->nfk", np.stack(list(wanted.values())), values)
    figures = stats.ratio_of_sums(
        sums, ORDERS * units[:, None], minimum=ORDERS * stats.MIN_DENOMINATOR, resamples=resamples
    )
    entries: list[dict[str, Any]] = [{} for _ in range(values.shape[2])]
    for place, name in enumerate(wanted):
        for column, entry in enumerate(entries):
            part = entry.setdefault(name[0], {}) if len(name) > 1 else entry
            put(part, name[-1], figures, place, column)
    return [{name: part for name, part in entry.items() if part} for entry in entries]


def _served(sums: CostSums, resamples: int) -> dict[str, Any]:
    """The walk of an engine that drafts as the drafter does, and of one that drafts with real rows: two ratios of sums over
    rounds and their difference, the same prompts resampled for both."""
    walks = [sums.served(name) for name in (OWN, REAL)]
    found: dict[str, Any] = {}
    if min(rounds.sum() for _, rounds in walks) < stats.MIN_DENOMINATOR:
        return found
    figures = contrasts(walks, [[1, 0], [0, 1], [-1, 1]], ratio, resamples=resamples)
    for place, name in enumerate(LENGTHS):
        put(found, name, figures, place)
    return {**found, "rounds": int(walks[0][1].sum())}
