"""Depth: where a drafter collapses when it drafts further than it was trained to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import numpy as np
import pandas as pd

from driftscope import stats
from driftscope.figures.grids import put
from driftscope.runs.summary import FeedFigures, feed_figures
from driftscope.stats.intervals import Floats

_DIRECT = {"carry_rms": "carry_rms", "displacement": "displacement"}
_GEOMETRIC = {"log_growth": "growth", "log_matched_growth": "matched_growth"}
HALF = 0.5


def depth_figures(anchors: pd.DataFrame, heads: pd.DataFrame, *, resamples: int = stats.RESAMPLES) -> dict[str, Any]:
    """From the `anchors` and `heads` rows of the probe; {} without default anchors.

    Per feed (`drafted`, `text`) a list of steps: `carry_rms`, `growth`, `matched_growth`, `mass` and `excess` by bucket,
    `displacement`; `rank`, the geometric mean of the text token's rank among the draft logits, with `ranked`, the share of
    tokens that have one; and `conditional` acceptance with its `reached` chains (drafted) or top-1 `agreement` (text).
    `collapse`: the first step whose text-fed agreement lies under half of step 1's, "none", or "not measurable"; in
    `agreement_kept` the share of step 1's agreement that each step keeps.
    """
    found: dict[str, Any] = {}
    for feed in ("drafted", "text"):
        rows = anchors[anchors["feed"] == feed]
        figures = feed_figures(rows, heads[heads["feed"] == feed])
        if figures is None:
            continue
        found[feed] = _steps(figures, resamples)
        rows = rows[~rows["loop"]]
        _ranks(found[feed], rows, figures, resamples)
        if feed == "drafted":
            conditional = stats.ratio_of_sums(figures.accepted, figures.reached, resamples=resamples)
            for place, step in enumerate(found[feed]):
                put(step, "conditional", conditional, place)
                if not np.isnan(figures.reached[:, place]).all():
                    step["reached"] = int(np.nansum(figures.reached[:, place]))
        elif rows["match"].notna().all():
            matches = _by_step(rows, rows["match"].astype(np.float64), figures, "sum")
            agreement = stats.ratio_of_sums(matches, figures.anchors, resamples=resamples)
            kept = stats.relative_ratio(
                matches, figures.anchors, matches[:, :1], figures.anchors[:, :1], resamples=resamples
            )
            for place, step in enumerate(found[feed]):
                put(step, "agreement", agreement, place)
                put(step, "agreement_kept", kept, place)
            found["collapse"] = collapse(kept.mean)
    return found


def collapse(kept: Floats) -> int | Literal["none", "not measurable"]:
    """First step (from 1) whose `kept[step]` share of step 1's agreement is under half."""
    if not np.isfinite(kept).all():
        return "not measurable"
    under = np.flatnonzero(kept < HALF)
    return int(under[0]) + 1 if under.size else "none"


def _steps(figures: FeedFigures, resamples: int) -> list[dict[str, Any]]:
    steps: list[dict[str, Any]] = [{"step": step} for step in range(1, figures.depth + 1)]
    for name, values in figures.means.items():
        intervals = stats.bca(values, resamples=resamples)
        if name in _GEOMETRIC:
            intervals = intervals.map(np.exp)
        group, _, bucket = name.partition("/")
        for place, step in enumerate(steps):
            if bucket:
                put(step.setdefault(group, {}), bucket, intervals, place)
            elif name in _DIRECT or name in _GEOMETRIC:
                put(step, _DIRECT.get(name) or _GEOMETRIC[name], intervals, place)
    return steps


def _ranks(steps: list[dict[str, Any]], rows: pd.DataFrame, figures: FeedFigures, resamples: int) -> None:
    if "rank" not in rows or rows["rank"].isna().all():
        return
    rank = rows["rank"].astype("Float64").to_numpy(np.float64, na_value=np.nan)
    logs = _by_step(rows, pd.Series(np.log(rank), index=rows.index), figures, "mean")
    ranked = _by_step(rows, pd.Series(np.isfinite(rank).astype(np.float64), index=rows.index), figures, "mean")
    middle, share = stats.bca(logs, resamples=resamples).map(np.exp), stats.bca(ranked, resamples=resamples)
    for place, step in enumerate(steps):
        put(step, "rank", middle, place)
        put(step, "ranked", share, place)


def _by_step(rows: pd.DataFrame, values: pd.Series, figures: FeedFigures, how: str) -> Floats:
    """[prompt, step] of `values`, one per row."""
    grouped = values.groupby([rows["prompt"].astype(str), rows["step"]])
    table = getattr(grouped, how)().unstack().reindex(index=figures.prompts, columns=range(1, figures.depth + 1))
    return table.to_numpy(np.float64)


def depth_rows(figures: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Per `feed` and step to the horizon: `quantity` conditional (drafted), agreement (text), rank (geometric mean), growth,
    matched_growth, displacement, mass and excess by `bucket`."""
    for feed in ("drafted", "text"):
        for step in figures.get(feed, ()):
            axes = {"feed": feed, "step": step["step"]}
            for name, figure in step.items():
                if name in ("mass", "excess"):
                    yield from ({**axes, "quantity": name, "bucket": part, **value} for part, value in figure.items())
                elif isinstance(figure, Mapping):
                    count = {"count": step["reached"], "counted": "chains"} if name == "conditional" else {}
                    yield {**axes, "quantity": name, "bucket": "", **figure, **count}
