"""Served lengths, survival of chains, what the drafter gives to the target's token."""

from __future__ import annotations

import numpy as np
import pandas as pd

from driftscope import stats
from driftscope.runs.prompt_sums import chains
from driftscope.runs.run import Run
from driftscope.show.frames.base import Runs, anchor_rows, joined, labelled, recorded, step_means, tidy
from driftscope.show.frames.measured import measured
from driftscope.stats.intervals import Floats

_CHAINS = {"rounds": ("served rounds", "served rounds"), "chains": ("every anchor", "anchors")}


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
    return joined(parts, "length", "rounds")


def survival(runs: Runs, depth: int | None = None) -> pd.DataFrame:
    """Share of chains with at least `step` accepted tokens: of those from every anchor outside loops (joint acceptance),
    and of the rounds that an engine serves, which start where a chain was rejected (`quantity`)."""
    records = []
    for label, figures in measured(runs, "acceptance", depth):
        for name, (quantity, counted) in _CHAINS.items():
            for entry in figures.get("survival", ()):
                if name in entry:
                    axes = {"run": label, "step": entry["length"], "quantity": quantity}
                    records.append({**axes, **entry[name], "count": figures[name], "counted": counted})
    return recorded(records, ("run", "step", "quantity"), runs)


def sampling(runs: Runs, depth: int | None = None) -> pd.DataFrame:
    """Sampling acceptance per step, text-fed: the expected share accepted when target and drafter are sampled."""
    records = []
    for label, figures in measured(runs, "acceptance", depth):
        for entry in figures.get("sampling", ()):
            if "acceptance" in entry:
                records.append({"run": label, "step": entry["step"], **entry["acceptance"]})
    return recorded(records, ("run", "step"), runs)


def confidence(runs: Runs, feed: str = "drafted") -> pd.DataFrame:
    """Mean probability that the drafter gives to its own token and to the target's, where that is in its vocabulary."""
    return step_means(runs, {"top_prob": "its own token", "prob": "the target's token"}, feed)


def _walks(run: Run, depth: int | None) -> tuple[Floats, int] | None:
    """Rounds by prompt and accepted count, [prompt, 0..depth], and depth; None if the anchors are not consecutive."""
    rows = anchor_rows(run, (), "drafted", loops=True)
    if rows.empty or rows["accepted"].isna().any():
        return None
    deepest = min(depth or int(rows["step"].max()), int(rows["step"].max()))
    rows = rows[rows["step"] <= deepest]
    found = chains(rows)
    if not found.consecutive:
        return None
    walks = [stats.served_walk(found.length[part], deepest).accepted for part in found.by_prompt()]
    counts = [np.bincount(accepted, minlength=deepest + 1) for accepted in walks]
    return np.array(counts, dtype=np.float64), deepest
