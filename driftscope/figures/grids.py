"""From rows of a table to arrays [prompt, step], and from intervals to JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from driftscope.cells import divided, prompt_codes
from driftscope.stats import Intervals
from driftscope.stats.intervals import Floats


def prompts_and_depth(rows: pd.DataFrame) -> tuple[list[str], int]:
    """Prompt ids in order, and the deepest step."""
    return prompt_codes(rows["prompt"])[1], int(rows["step"].max()) if len(rows) else 0


def grid(rows: pd.DataFrame, column: str, prompts: Sequence[str], depth: int) -> Floats:
    """[prompt, step]: the sum of `column` over the rows of each prompt and step; NaN where there is no value."""
    shape = len(prompts), depth
    if column not in rows:
        return np.full(shape, np.nan)
    codes, names = prompt_codes(rows["prompt"])
    place = np.array([-1, *pd.Index(prompts).get_indexer(names)])[codes + 1]
    step = rows["step"].to_numpy(np.int64)
    values = rows[column].to_numpy(np.float64, na_value=np.nan)
    held = (place >= 0) & (step >= 1) & (step <= depth) & np.isfinite(values)
    cell = (place * depth + step - 1)[held]
    total, count = (np.bincount(cell, weights, minlength=shape[0] * depth) for weights in (values[held], None))
    return np.where(count > 0, total, np.nan).reshape(shape)


def means(rows: pd.DataFrame, column: str, prompts: Sequence[str], depth: int) -> Floats:
    """[prompt, step]: sum of `column` over the sum of `anchors`; NaN without anchors."""
    return divided(grid(rows, column, prompts, depth), grid(rows, "anchors", prompts, depth))


def over_prompts(values: Floats) -> Floats:
    """Mean of `values[prompt, ...]` over the prompts that have one; NaN without any."""
    present = np.isfinite(values)
    return divided(np.where(present, values, 0.0).sum(0), present.sum(0).astype(np.float64))


def variant(rows: pd.DataFrame, name: str, feed: str = "drafted") -> pd.DataFrame:
    """The rows of one variant and feed."""
    return rows[(rows["variant"] == name) & (rows["feed"] == feed)]


def lengths(rows: pd.DataFrame, prompts: Sequence[str], depth: int) -> dict[str, tuple[Floats, Floats]]:
    """Accepted tokens and what they are divided by, each [prompt], of both acceptance lengths without bonus tokens: `served`
    over rounds of the walk, `anchor_mean` over anchors outside loops. From the `steps` rows of one variant, drafted feed."""
    served, rounds = (grid(rows, column, prompts, depth)[:, -1] for column in ("served_accepted", "served_rounds"))
    accepted = grid(rows, "accepted", prompts, depth).sum(1)
    return {"served": (served, rounds), "anchor_mean": (accepted, grid(rows, "anchors", prompts, depth)[:, 0])}


def put(result: dict[str, Any], name: str, intervals: Intervals, *index: int) -> None:
    """Store a figure, if it was measured."""
    interval = intervals.at(*index)
    if interval is not None:
        result[name] = interval.to_dict()
