"""What drift costs, and for what reason chains end, in a form that can be compared: parts per prompt."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from driftscope import stats
from driftscope.chain.patches import REASONS
from driftscope.compare.quantity import Quantity, Sample
from driftscope.figures.cost import COLUMNS, PROBE
from driftscope.figures.cost_sums import CostSums, cost_sums
from driftscope.figures.effects import ORDERS, effects
from driftscope.runs.run import Run
from driftscope.stats.intervals import Floats

PATHS = {
    "state": "the carried state",
    "pattern": "attention",
    "values": "the values of its own rows",
    "state_rms": "the norm of the carried state",
    "state_direction": "the direction of the carried state",
}
PATHS_KEY = ("state", "pattern", "values")
"""What the headline speaks of."""
_WHY = {
    "vocabulary": "vocabulary",
    "target_undecided": "target undecided",
    "drafter": "the drafter itself",
    "state": "drifted state",
    "pattern": "drifted attention",
    "values": "drifted values",
    "several": "several drifted parts",
    "block": "drafting in one block",
}


def cost_samples(run: Run, prompts: Sequence[str], depth: int) -> list[Sample]:
    """Cost and undrifted length, the Shapley value of each path, and the share of each reason; [] where the probe `cost` was not
    run."""
    if PROBE not in run.probes:
        return []
    rows = run.table("anchors", PROBE, columns=COLUMNS)
    sums = cost_sums(rows[rows["prompt"].isin(prompts)], depth)
    found = [] if sums is None else lengths(sums, prompts)
    return [*found, *reasons(run.table("rejections", PROBE), prompts, depth)]


def lengths(sums: CostSums, prompts: Sequence[str]) -> list[Sample]:
    """In tokens per anchor, from what each patch accepts."""
    wanted = effects(sums.patches)
    quantities: dict[tuple[str, ...], Quantity] = {
        ("undrifted",): Quantity("undrifted", "undrifted", "undrifted length", "tokens", better="higher"),
        ("cost",): Quantity("drift_cost", "cost of drift", "cost of drift", "tokens", better="lower", key=True),
    }
    for name, words in PATHS.items():
        label = f"cost through {words}"
        quantities[name, "shapley"] = Quantity(
            f"cost_{name}", f"cost, {name.replace('_', ' ')}", label, "tokens", better="lower", key=name in PATHS_KEY
        )
    units = ORDERS * _in_order(sums.anchors, sums.prompts, prompts)
    return [
        Sample(quantity, (_in_order(sums.lengths[..., -1] @ wanted[name], sums.prompts, prompts), units))
        for name, quantity in quantities.items()
        if name in wanted and sums.anchors.sum() >= stats.MIN_DENOMINATOR
    ]


def reasons(rejections: pd.DataFrame, prompts: Sequence[str], depth: int) -> list[Sample]:
    """Share of the rejected anchors that end for each reason within `depth` steps, outside loops."""
    rows = rejections[~rejections["loop"].to_numpy(bool)] if len(rejections) else rejections
    if rows.empty:
        return []
    rejected = rows["step"].to_numpy(np.float64, na_value=np.nan) <= depth
    rows = rows[rejected]
    by_prompt = pd.crosstab(rows["prompt"].astype(str), rows["reason"].astype(str)).reindex(prompts, fill_value=0)
    total = by_prompt.sum(axis=1).to_numpy(np.float64)
    if total.sum() < stats.MIN_DENOMINATOR:
        return []
    return [
        Sample(
            Quantity(f"rejected_{name}", f"ends: {_WHY[name]}", f"share of rejections by {_WHY[name]}", "share"),
            (by_prompt[name].to_numpy(np.float64) if name in by_prompt else np.zeros(len(prompts)), total),
        )
        for name in _held(by_prompt)
    ]


def _held(by_prompt: pd.DataFrame) -> list[str]:
    """The reasons that can occur: a block has `block` in the place of the paths of drift."""
    drift = ("block",) if "block" in by_prompt else ("state", "pattern", "values", "several")
    return [name for name in REASONS if name not in ("state", "pattern", "values", "several", "block") or name in drift]


def _in_order(values: Floats, own: Sequence[str], prompts: Sequence[str]) -> Floats:
    """`values[own prompt]` in the order of `prompts`; 0 for one without anchors."""
    return pd.Series(values, index=list(own)).reindex(prompts).fillna(0.0).to_numpy(np.float64)
