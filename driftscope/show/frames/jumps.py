"""The crossing from prefill to draft: what a site does at the first step that real target features do not feed."""

from __future__ import annotations

import numpy as np
import pandas as pd

from driftscope import stats
from driftscope.runs.prompt_sums import PromptCells
from driftscope.show.frames.base import Runs, anchor_rows, joined, labelled, tidy
from driftscope.show.frames.norms import sites_of

FIGURES = {"jump": stats.jump, "slope": stats.slope}


def site_jumps(runs: Runs, feed: str = "drafted") -> pd.DataFrame:
    """Norm per `site` across the boundary of prefill and draft, as factors: `quantity` jump (step 2 over step 1, which is
    the last row that real features feed) and slope (per step, least squares over the logs of steps 2..D). A head that only
    has to get used to its own state has a jump and a slope of 1; drift is a slope.

    Geometric means over anchors, then over prompts. A site that fires once, at step 1, has neither.
    """
    parts = []
    for label, run in labelled(runs).items():
        sites = sites_of(run)
        rows = anchor_rows(run, sites, feed)
        if rows.empty or not sites:
            continue
        cells = PromptCells(rows)
        values = []
        for name in sites:
            size = rows[name].to_numpy(np.float64)
            with np.errstate(divide="ignore", invalid="ignore"):
                values.append(np.where(size > 0, np.log(size), np.nan))
        logs = [cells.mean(value) for value in values]
        count = [[cells.count(value)[:, 1:2].sum()] * len(FIGURES) for value in values]
        figures = stats.bca(np.stack([np.stack([f(log) for f in FIGURES.values()], -1) for log in logs], 1)).map(np.exp)
        axes = {"site": [name.removeprefix("rms/") for name in sites], "quantity": list(FIGURES)}
        part = tidy(label, figures, axes, np.array(count), "anchors", cells.prompts)
        parts.append(part[np.isfinite(part["mean"])])
    return joined(parts, "site", "quantity")


def jump_sentences(frame: pd.DataFrame) -> list[tuple[str, str]]:
    """`site_jumps` -> (run, the site whose norm changes most: at the crossing, and per step behind it)."""
    words = {"jump": "at step 2", "slope": "per step behind it"}
    said = []
    for run, rows in frame.groupby("run", sort=False):
        told = []
        for name, when in words.items():
            part = rows[rows["quantity"] == name]
            if len(part):
                most = part.loc[np.log(part["mean"]).abs().idxmax()]
                ends = f" (95% {most['low']:.2f} to {most['high']:.2f})" if np.isfinite(most["low"]) else ""
                if f"{most['mean']:.2f}" == "1.00":
                    told.append(f"none changes by 1% {when}")
                else:
                    told.append(f"{most['site']} changes most {when}, x{most['mean']:.2f}{ends}")
        said.append((str(run), "; ".join(told)))
    return said
