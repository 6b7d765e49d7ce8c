"""Served lengths, survival of chains, what the drafter gives to the target's token."""

from __future__ import annotations

import numpy as np
import pandas as pd

from driftscope import stats
from driftscope.frames.base import PromptCells, Runs, anchor_rows, joined, labelled, step_means, tidy
from driftscope.run import Run
from driftscope.stats.intervals import Floats


def served_lengths(runs: Runs, depth: int | None = None) -> pd.DataFrame:
    """Share of the served rounds that accept exactly `length` drafted tokens, at `depth` draft tokens a round (default:
    all steps); `rounds` is how many. Loops are kept, as in an engine. No rows if the anchors are not consecutive.
    """
    parts = []
    for label, run in labelled(runs).items():
        walks = _walks(run, depth)
        if walks is None:
            continue
        counts, deepest = walks
        total = counts.sum(axis=1, keepdims=True)
        axis = {"length": list(range(deepest + 1))}
        figures = stats.ratio_of_sums(counts, total)
        part = tidy(label, figures, axis, total.sum(), "served rounds", len(counts))
        parts.append(part.assign(rounds=counts.sum(0).astype(np.int64)))
    return joined(parts)


def survival(runs: Runs, depth: int | None = None) -> pd.DataFrame:
    """Share of chains with at least `step` accepted tokens: of every anchor outside loops (joint acceptance), and of the
    rounds that an engine serves, which start where a chain was rejected (`quantity`)."""
    parts = []
    for label, run in labelled(runs).items():
        rows = anchor_rows(run, (), "drafted")
        if rows.empty:
            continue
        cells = PromptCells(rows)
        deepest = min(depth or len(cells.steps), len(cells.steps))
        accepted, anchors = (cells.sum(part)[:, :deepest] for part in (rows["accepted"], np.ones(len(rows))))
        axes = {"step": cells.steps[:deepest], "quantity": ["every anchor"]}
        figures = stats.ratio_of_sums(accepted[..., None], anchors[..., None])
        parts.append(tidy(label, figures, axes, anchors.sum(0)[:, None], "anchors", cells.prompts))
        walks = _walks(run, deepest)
        if walks is None:
            continue
        counts = walks[0]
        total = counts.sum(axis=1, keepdims=True)
        reaching = counts[:, ::-1].cumsum(1)[:, ::-1][:, 1:]
        axes = {"step": list(range(1, deepest + 1)), "quantity": ["served rounds"]}
        figures = stats.ratio_of_sums(reaching[..., None], total[..., None])
        parts.append(tidy(label, figures, axes, total.sum(), "served rounds", len(counts)))
    return joined(parts)


def confidence(runs: Runs, feed: str = "drafted") -> pd.DataFrame:
    """Mean probability that the drafter gives to its own token and to the target's, where that is in its vocabulary."""
    return step_means(runs, {"top_prob": "its own token", "prob": "the target's token"}, feed)


def _walks(run: Run, depth: int | None) -> tuple[Floats, int] | None:
    """Rounds by prompt and accepted count, [prompt, 0..depth], and depth; None if the anchors are not consecutive."""
    rows = anchor_rows(run, (), "drafted", loops=True)
    if rows.empty:
        return None
    deepest = min(depth or int(rows["step"].max()), int(rows["step"].max()))
    rows = rows[rows["step"] <= deepest]
    lengths = rows.groupby(["prompt", "anchor"], sort=True)["accepted"].sum()
    counts = []
    for _, accepted in lengths.groupby(level=0):
        if (np.diff(accepted.index.get_level_values("anchor")) != 1).any():
            return None
        walk = stats.served_walk(accepted.to_numpy(), deepest)
        counts.append(np.bincount(walk.accepted, minlength=deepest + 1))
    return np.array(counts, dtype=np.float64), deepest
