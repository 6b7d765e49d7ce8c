"""Acceptance beyond the summary: sampling acceptance, quantiles of the served length, survival of chains."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from driftscope import stats
from driftscope.figures.grids import put
from driftscope.runs.prompt_sums import PromptCells, chains
from driftscope.stats.intervals import Floats
from driftscope.stats.shares import count_quantiles

COLUMNS = ("feed", "prompt", "anchor", "step", "loop", "accepted", "sampling")
"""Of `anchors`: what the figures are made of."""
LEVELS = (0.1, 0.25, 0.5, 0.75, 0.9)


def acceptance_figures(
    anchors: pd.DataFrame, depth: int | None = None, *, resamples: int = stats.RESAMPLES
) -> dict[str, Any]:
    """From the `anchors` rows of the clean variant; {} without any.

    `sampling`: per step, mean over anchors and then prompts of sum_v min(p, q), text-fed, loops left out. `survival`: for
    every length from 1, the share of `chains` (all anchors outside loops) and of served `rounds` (the walk, loops kept) with
    at least that many drafted tokens accepted. `served_quantiles`: of the accepted tokens of a round, without bonus tokens.
    Served figures are absent if the anchors of a prompt are not consecutive.
    """
    if depth is not None:
        anchors = anchors[anchors["step"] <= depth]
    found: dict[str, Any] = {}
    sampling = _sampling(anchors[anchors["feed"] == "text"], resamples)
    if sampling:
        found["sampling"] = sampling
    drafted = anchors[(anchors["feed"] == "drafted") & anchors["accepted"].notna()]
    if drafted.empty:
        return found
    deepest = int(drafted["step"].max())
    by_chain = chains(drafted)
    parts = list(by_chain.by_prompt())
    outside = [by_chain.length[part][~by_chain.loop[part]] for part in parts]
    counts = np.stack([_histogram(lengths, deepest) for lengths in outside])
    survival: list[dict[str, Any]] = [{"length": size} for size in range(1, deepest + 1)]
    _survive(survival, "chains", counts, resamples)
    if by_chain.consecutive:
        walks = [stats.served_walk(by_chain.length[part], deepest).accepted for part in parts]
        rounds = np.stack([_histogram(walk, deepest) for walk in walks])
        _survive(survival, "rounds", rounds, resamples)
        quantiles = count_quantiles(rounds, LEVELS, resamples=resamples)
        found["served_quantiles"] = [{"level": level} for level in LEVELS]
        for place, entry in enumerate(found["served_quantiles"]):
            put(entry, "length", quantiles, place)
        found["rounds"] = int(rounds.sum())
    found["survival"] = survival
    found["chains"] = int(counts.sum())
    return found


def _sampling(rows: pd.DataFrame, resamples: int) -> list[dict[str, Any]]:
    if "sampling" not in rows or rows["sampling"].isna().all():
        return []
    rows = rows[~rows["loop"]]
    cells = PromptCells(rows)
    figures = stats.bca(cells.mean(rows["sampling"]), resamples=resamples)
    steps: list[dict[str, Any]] = [{"step": step} for step in cells.steps]
    for place, entry in enumerate(steps):
        put(entry, "acceptance", figures, place)
    return steps


def _histogram(lengths: Any, deepest: int) -> Floats:
    return np.bincount(np.asarray(lengths, dtype=np.int64), minlength=deepest + 1).astype(np.float64)


def _survive(entries: list[dict[str, Any]], name: str, counts: Floats, resamples: int) -> None:
    """Share of `counts[prompt, length]` at or above each length from 1."""
    at_least = counts[:, ::-1].cumsum(1)[:, ::-1]
    figures = stats.ratio_of_sums(at_least[:, 1:], at_least[:, :1], resamples=resamples)
    for place, entry in enumerate(entries):
        put(entry, name, figures, place)
