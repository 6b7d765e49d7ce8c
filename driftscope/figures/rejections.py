"""Where chains end: shares of the reasons for which they are rejected, from the table `rejections`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from driftscope import stats
from driftscope.chain.patches import REASONS
from driftscope.figures.grids import put
from driftscope.runs.prompt_sums import check_filled, prompt_codes
from driftscope.stats.intervals import Floats


def rejection_figures(
    rejections: pd.DataFrame,
    depth: int,
    categories: Mapping[str, str | None] | None = None,
    *,
    resamples: int = stats.RESAMPLES,
) -> dict[str, Any]:
    """Of the anchors outside loops that are `rejected` within `depth` steps; {} without any anchor.

    By reason (`driftscope.chain.patches.REASONS`): its share of the rejected, which sum to 1; reasons that a drafter of this kind
    cannot have are absent. `lost`: tokens that a reason costs, depth minus the accepted length, per anchor; with the accepted
    ones they sum to `depth`. `gained`: accepted tokens per anchor at which the row without drafting is wrong: the cost of drift
    is net. `ties`: anchors where an end of the patched chains met a tie within rounding. `probs`: by reason, means over its
    rejected anchors of the drafter's probability of the text's token without drafting (`drafter`) and of the target's
    (`target`). `steps`: per step, of the chains that are `alive`: the share rejected by each reason. `by_category`: shares and
    counts by category of the prompts.
    """
    rows = rejections[~rejections["loop"].to_numpy(bool)]
    if rows.empty:
        return {}
    held = _Held(rows, depth)
    found = _shares(held, resamples)
    lost = stats.ratio_of_sums(held.lost, held.anchors[:, None], resamples=resamples)
    found["lost"] = _by_reason(held, lost)
    gained = stats.ratio_of_sums(held.gained, held.anchors, resamples=resamples)
    put(found, "gained", gained)
    found["ties"] = int(rows["tie"].sum())
    found["probs"] = _probs(rows[rows["step"].notna() & (rows["step"] <= depth)], resamples)
    alive = held.anchors[:, None] - np.pad(held.ended.sum(1).cumsum(1), ((0, 0), (1, 0)))[:, :-1]
    shares = stats.ratio_of_sums(held.ended, alive[:, None], resamples=resamples)
    found["steps"] = [
        {"step": k + 1, "alive": int(alive[:, k].sum()), **_by_reason(held, shares, k)} for k in range(depth)
    ]
    by_category = {}
    for group in sorted({name for name in (categories or {}).values() if name}):
        names = {prompt for prompt, name in (categories or {}).items() if name == group}
        part = rows[rows["prompt"].astype(str).isin(names)]
        if len(part):
            by_category[group] = _shares(_Held(part, depth, held.reasons), resamples)
    if by_category:
        found["by_category"] = by_category
    return found


class _Held:
    """Sums per prompt. `ended` [prompt, reason, step] counts the rejected, `lost` [prompt, reason] the tokens that it costs."""

    def __init__(self, rows: pd.DataFrame, depth: int, reasons: tuple[str, ...] | None = None) -> None:
        code, prompts = prompt_codes(rows["prompt"])
        step = rows["step"].to_numpy(np.float64, na_value=np.nan)
        rejected = step <= depth
        blocks = bool(rows["mends_state"].isna().all()) and bool(rejected.any())
        self.reasons = reasons or tuple(
            name for name in REASONS if name in ((*REASONS[:3], "block") if blocks else REASONS[:-1])
        )
        check_filled(len(prompts) * depth, len(rows) * depth)
        place = {name: number for number, name in enumerate(self.reasons)}
        reason = np.array([place.get(str(name), -1) for name in rows["reason"]])[rejected]
        at = code[rejected], reason, step[rejected].astype(np.int64) - 1
        self.ended: Floats = np.zeros((len(prompts), len(self.reasons), depth))
        np.add.at(self.ended, at, 1.0)
        self.lost = self.ended @ (depth - np.arange(depth, dtype=np.float64))
        self.anchors = np.bincount(code, minlength=len(prompts)).astype(np.float64)
        self.gained = np.bincount(code, rows["gained"].to_numpy(np.float64), minlength=len(prompts))


def _shares(held: _Held, resamples: int) -> dict[str, Any]:
    counts = held.ended.sum(2)
    figures = stats.ratio_of_sums(counts, counts.sum(1, keepdims=True), resamples=resamples)
    return {**_by_reason(held, figures), "rejected": int(counts.sum()), "anchors": int(held.anchors.sum())}


def _by_reason(held: _Held, figures: stats.Intervals, *index: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for place, name in enumerate(held.reasons):
        put(found, name, figures, place, *index)
    return found


def _probs(rows: pd.DataFrame, resamples: int) -> dict[str, Any]:
    """Ratio of sums over the rejected anchors of a reason."""
    found: dict[str, Any] = {}
    code, prompts = prompt_codes(rows["prompt"])
    for reason in REASONS:
        own = (rows["reason"] == reason).to_numpy(bool)
        entry: dict[str, Any] = {}
        for name, column in (("drafter", "prob"), ("target", "target_prob")):
            values = rows[column].to_numpy(np.float64, na_value=np.nan)
            told = own & np.isfinite(values)
            total, count = (
                np.bincount(code[told], weights, minlength=len(prompts)) for weights in (values[told], None)
            )
            put(entry, name, stats.ratio_of_sums(total, count, resamples=resamples))
        if entry:
            found[reason] = entry
    return found
