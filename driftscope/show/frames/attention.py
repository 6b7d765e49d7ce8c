"""Attention per key and per head."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from driftscope import stats
from driftscope.runs.prompt_sums import PromptCells, divided, prompt_codes
from driftscope.runs.run import Run
from driftscope.runs.schema import BUCKETS, DISJOINT_BUCKETS
from driftscope.runs.summary import CLEAN
from driftscope.show.frames.base import Runs, anchor_rows, joined, labelled, tidy
from driftscope.stats.intervals import Floats


def per_key(runs: Runs, feed: str = "drafted") -> pd.DataFrame:
    """Attention per key against uniform attention, by `bucket` and step: mean mass / mean share of the keys, so that 1
    is what attention without preference would give. A bucket without keys has no ratio.
    """
    parts = []
    for label, run in labelled(runs).items():
        rows = anchor_rows(run, ("mass/", "keys/"), feed)
        held = [name for name in BUCKETS if f"mass/{name}" in rows and f"keys/{name}" in rows]
        disjoint = [f"keys/{name}" for name in held if name in DISJOINT_BUCKETS]
        # Without every part of the keys their total is unknown.
        if rows.empty or not {"keys/sink", "keys/prompt", "keys/committed", "keys/current"} <= set(disjoint):
            continue
        keys = rows[[f"keys/{name}" for name in held]].astype(np.float64)
        total = keys[disjoint].sum(axis=1)
        held = [name for name in held if keys[f"keys/{name}"].gt(0).any()]
        cells = PromptCells(rows)
        mass = np.stack([cells.mean(rows[f"mass/{name}"]) for name in held], -1)
        share = np.stack([cells.mean(keys[f"keys/{name}"] / total) for name in held], -1)
        figures = stats.ratio_of_sums(mass, share, minimum=0.0)
        count = cells.count(total).sum(0)[:, None]
        parts.append(tidy(label, figures, {"step": cells.steps, "bucket": held}, count, "anchors", cells.prompts))
    return joined(parts, "step", "bucket")


def head_masses(
    runs: Runs,
    layer: int | None = None,
    head: int | None = None,
    kinds: Sequence[str] = ("mass", "excess"),
    buckets: Sequence[str] = BUCKETS,
    feed: str = "drafted",
    *,
    intervals: bool = True,
) -> pd.DataFrame:
    """Masses by `layer`, `head`, `quantity` (mass, excess), `bucket` and step: a prompt's anchors, then prompts.

    `layer` and `head` keep one of them. Intervals of every head of a large drafter take seconds.
    """
    parts = []
    for label, run in labelled(runs).items():
        rows = _head_rows(run, feed)
        if layer is not None:
            rows = rows[rows["layer"] == layer]
        if head is not None:
            rows = rows[rows["head"] == head]
        columns = [f"{kind}/{bucket}" for kind in kinds for bucket in buckets if f"{kind}/{bucket}" in rows]
        if rows.empty or not columns:
            continue
        values, axes, anchors, prompts = _per_head(rows, columns)
        figures = stats.bca(values) if intervals else _without_intervals(values)
        frame = tidy(label, figures, axes, anchors[..., None], "anchors", prompts)
        split = frame.pop("column").str.split("/", n=1)
        parts.append(frame.assign(quantity=split.str[0], bucket=split.str[1]))
    return joined(parts, "step", "layer", "head", "quantity", "bucket")


def head_ranking(runs: Runs, bucket: str = "self_generated", feed: str = "drafted") -> pd.DataFrame:
    """Heads by the size of their excess mass at the last step, strongest first within each run (`stats.rank_heads`).

    `rank` counts from 1; `p_value` is Holm-adjusted over the heads, NaN with too few prompts.
    """
    parts = []
    for label, run in labelled(runs).items():
        rows = _head_rows(run, feed)
        if rows.empty or f"excess/{bucket}" not in rows:
            continue
        rows = rows[rows["step"] == rows["step"].max()]
        values, axes, anchors, prompts = _per_head(rows, [f"excess/{bucket}"])
        layers, heads = axes["layer"], axes["head"]
        ranked = stats.rank_heads(values[:, 0, :, :, 0])
        parts.append(
            pd.DataFrame(
                {
                    "run": label,
                    "step": int(rows["step"].max()),
                    "layer": [layers[entry.layer] for entry in ranked],
                    "head": [heads[entry.head] for entry in ranked],
                    "rank": range(1, len(ranked) + 1),
                    "bucket": bucket,
                    "mean": [entry.drift.mean for entry in ranked],
                    "low": [np.nan if entry.drift.low is None else entry.drift.low for entry in ranked],
                    "high": [np.nan if entry.drift.high is None else entry.drift.high for entry in ranked],
                    "p_value": [np.nan if entry.p_value is None else entry.p_value for entry in ranked],
                    "count": [int(anchors[0, entry.layer, entry.head]) for entry in ranked],
                    "counted": "anchors",
                    "prompts": prompts,
                }
            )
        )
    return joined(parts, "step", "layer", "head", "rank", "bucket", "p_value")


def _head_rows(run: Run, feed: str) -> pd.DataFrame:
    frame = run.table("heads", probe=CLEAN)
    return frame[(frame["variant"] == CLEAN) & (frame["feed"] == feed) & (frame["anchors"] > 0)]


def _per_head(rows: pd.DataFrame, columns: Sequence[str]) -> tuple[Floats, dict[str, list[object]], Floats, int]:
    """[prompt, step, layer, head, column] means over a prompt's anchors, the axes, anchors [step, layer, head], prompts."""
    prompt, prompts = prompt_codes(rows["prompt"])
    codes = []
    axes: dict[str, list[object]] = {}
    for name in ("step", "layer", "head"):
        code, values = pd.factorize(rows[name], sort=True)
        codes.append(code)
        axes[name] = [int(value) for value in values]
    shape = (len(prompts), *(len(values) for values in axes.values()), len(columns))
    anchors = rows["anchors"].to_numpy(np.float64)
    means = np.full(shape, np.nan)
    means[prompt, *codes] = divided(rows[list(columns)].to_numpy(np.float64), anchors[:, None])
    total = np.zeros(shape[1:-1])
    np.add.at(total, tuple(codes), anchors)
    return means, {**axes, "column": list(columns)}, total, len(prompts)


def _without_intervals(values: Floats) -> stats.Intervals:
    present = np.isfinite(values)
    mean = divided(np.where(present, values, 0.0).sum(0), present.sum(0))
    return stats.Intervals(mean, np.full_like(mean, np.nan), np.full_like(mean, np.nan))
