"""From rows of a table to arrays [prompt, step], and from intervals to JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from driftscope.runs.prompt_sums import Ints, check_filled, divided, prompt_codes
from driftscope.stats import Intervals
from driftscope.stats.intervals import Floats

Key = tuple[str | int, ...]


def prompts_and_depth(rows: pd.DataFrame) -> tuple[list[str], int]:
    """Prompt ids in order, and the deepest step."""
    return prompt_codes(rows["prompt"])[1], int(rows["step"].max()) if len(rows) else 0


class Grids:
    """Sums of rows as arrays [prompt, step], one per variant and feed, or per other columns `by`. The rows are ordered once,
    whatever is asked: a key is a value of each of those columns, such as ("noise/clean", "text"). A key without rows, or a
    column that is not there, is NaN throughout."""

    def __init__(
        self, rows: pd.DataFrame, prompts: Sequence[str], depth: int, by: Sequence[str] = ("variant", "feed")
    ) -> None:
        self.shape = len(prompts), depth
        self._rows = rows
        self._values: dict[str, Floats] = {}
        codes, names = prompt_codes(rows["prompt"])
        check_filled(len(names) * depth, len(rows))
        known = {name: place for place, name in enumerate(prompts)}
        place = np.array([known.get(name, -1) for name in names], dtype=np.int64)[codes]
        step = rows["step"].to_numpy(np.int64)
        self._cell = np.where((place >= 0) & (step >= 1) & (step <= depth), place * depth + step - 1, -1)
        self._at = _places([rows[name] for name in by])

    def sum(self, column: str, *keys: Key) -> Floats:
        """The sum of `column` over the rows of each prompt and step that have one of these keys; NaN where there is no value."""
        if column not in self._rows:
            return np.full(self.shape, np.nan)
        if column not in self._values:
            self._values[column] = self._rows[column].to_numpy(np.float64, na_value=np.nan)
        found = [self._at[key] for key in keys if key in self._at]
        rows = found[0] if len(found) == 1 else np.sort(np.concatenate([np.empty(0, np.int64), *found]))
        values, cell = self._values[column][rows], self._cell[rows]
        held = (cell >= 0) & np.isfinite(values)
        size = self.shape[0] * self.shape[1]
        total, count = (np.bincount(cell[held], weights, minlength=size) for weights in (values[held], None))
        return np.where(count > 0, total, np.nan).reshape(self.shape)

    def mean(self, column: str, *keys: Key) -> Floats:
        """Sum of `column` over the sum of `anchors`; NaN without anchors."""
        return divided(self.sum(column, *keys), self.sum("anchors", *keys))

    def lengths(self, name: str) -> dict[str, tuple[Floats, Floats]]:
        """Of a variant, drafted feed: accepted tokens and what they are divided by, each [prompt], of both acceptance lengths
        without bonus tokens: `served` over rounds of the walk, `anchor_mean` over anchors outside loops."""
        key = name, "drafted"
        served, rounds = (self.sum(column, key)[:, -1] for column in ("served_accepted", "served_rounds"))
        return {
            "served": (served, rounds),
            "anchor_mean": (self.sum("accepted", key).sum(1), self.sum("anchors", key)[:, 0]),
        }


def _places(columns: Sequence[pd.Series]) -> dict[Key, Ints]:
    """Value of each column -> the rows that have them, in order."""
    if not len(columns[0]):
        return {}
    code, values = np.zeros(len(columns[0]), dtype=np.int64), []
    for column in columns:
        codes, found = pd.factorize(column)
        code = code * len(found) + codes
        values.append([value if isinstance(value, str) else int(value) for value in found])
    order = np.argsort(code, kind="stable")
    starts = np.flatnonzero(np.diff(code[order], prepend=-1))
    places = np.unravel_index(code[order[starts]], [len(found) for found in values])
    keys = zip(*([found[place] for place in at] for found, at in zip(values, places, strict=True)), strict=True)
    return dict(zip(keys, np.split(order, starts[1:]), strict=True))


def over_prompts(values: Floats) -> Floats:
    """Mean of `values[prompt, ...]` over the prompts that have one; NaN without any."""
    present = np.isfinite(values)
    return divided(np.where(present, values, 0.0).sum(0), present.sum(0).astype(np.float64))


def variant(rows: pd.DataFrame, name: str, feed: str = "drafted") -> pd.DataFrame:
    """The rows of one variant and feed."""
    return rows[(rows["variant"] == name) & (rows["feed"] == feed)]


def put(result: dict[str, Any], name: str, intervals: Intervals, *index: int) -> None:
    """Store a figure, if it was measured."""
    interval = intervals.at(*index)
    if interval is not None:
        result[name] = interval.to_dict()
