"""Rows of a table as arrays: sums per prompt and step, and what chains accept. Written for millions of rows: one pass per
column, no copy of the table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from driftscope.errors import RunError
from driftscope.stats.intervals import Floats

Ints = NDArray[np.int64]
_FEW = 10_000


def prompt_codes(column: pd.Series) -> tuple[Ints, list[str]]:
    """Per row the place of its prompt among those that occur, which are in order."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        codes = column.cat.codes.to_numpy()
        names = [str(name) for name in column.cat.categories]
        used = np.flatnonzero(np.bincount(codes, minlength=len(names)))
        order = sorted(used.tolist(), key=names.__getitem__)
        place = np.zeros(max(len(names), 1), dtype=np.int64)
        place[order] = np.arange(len(order))
        return place[codes], [names[code] for code in order]
    codes, found = pd.factorize(column.astype(str), sort=True)
    return codes.astype(np.int64), [str(name) for name in found]


def check_filled(cells: int, rows: int) -> None:
    """Raises RunError for rows of so many prompts and so deep steps that hardly any cell would hold something: a small file can
    ask for any amount of memory so."""
    if cells > 2 * rows + _FEW:
        raise RunError(
            f"{rows:,} rows for {cells:,} prompts and steps, which no probe stores: changed or damaged; measure again"
        )


class PromptCells:
    """Sums of rows per prompt and step, as arrays [prompt, step]. The rows need `prompt` and `step`."""

    def __init__(self, rows: pd.DataFrame) -> None:
        place, self.names = prompt_codes(rows["prompt"])
        step = rows["step"].to_numpy(np.int64) - 1
        self.prompts = len(self.names)
        self.steps = list(range(1, int(step.max() + 1 if len(step) else 0) + 1))
        check_filled(self.prompts * len(self.steps), len(rows))
        self._cell = place * len(self.steps) + step

    def sum(self, values: Any) -> Floats:
        """Sum of what is not NaN."""
        data = np.asarray(values, dtype=np.float64)
        present = np.isfinite(data)
        return self._total(data if present.all() else np.where(present, data, 0.0))

    def count(self, values: Any) -> Floats:
        """How many values are not NaN."""
        present = np.isfinite(np.asarray(values, dtype=np.float64))
        return self.size() if present.all() else self._total(present)

    def mean(self, values: Any) -> Floats:
        """Mean of what is not NaN; NaN without any."""
        return divided(self.sum(values), self.count(values))

    def size(self) -> Floats:
        """How many rows there are."""
        return self._size.copy()

    @cached_property
    def _size(self) -> Floats:
        return self._total(None)

    def _total(self, weights: Any) -> Floats:
        shape = self.prompts, len(self.steps)
        total = np.bincount(self._cell, weights, minlength=shape[0] * shape[1])
        return total.astype(np.float64).reshape(shape)


def divided(total: Floats, count: Floats) -> Floats:
    """`total` / `count`, NaN where nothing was counted."""
    return np.divide(total, count, out=np.full(np.shape(total), np.nan), where=count > 0)


@dataclass(frozen=True)
class Chains:
    """One entry per chain, by prompt and then anchor."""

    prompts: list[str]
    prompt: Ints
    """[chain] place in `prompts`."""
    anchor: Ints
    length: Ints
    """[chain] accepted tokens."""
    loop: NDArray[np.bool_]

    @property
    def consecutive(self) -> bool:
        """Whether no prompt skips an anchor, as a served walk needs."""
        inside = np.diff(self.prompt) == 0
        return bool((np.diff(self.anchor)[inside] == 1).all())

    def by_prompt(self) -> Iterator[slice]:
        """The chains of each prompt."""
        sizes = np.bincount(self.prompt, minlength=len(self.prompts))
        yield from (slice(end - size, end) for size, end in zip(sizes, np.cumsum(sizes), strict=True))


def chains(rows: pd.DataFrame) -> Chains:
    """From the `anchors` rows of one variant and feed; a row per anchor and step, in any order. Without those of texts on
    which acceptance was not measured."""
    rows = rows[rows["accepted"].notna()]
    prompt, names = prompt_codes(rows["prompt"])
    anchor = rows["anchor"].to_numpy(np.int64)
    order, first = chain_order(prompt, anchor)
    start = order[first]
    chain = np.cumsum(first) - 1
    accepted = rows["accepted"].to_numpy(np.float64)[order]
    length = np.bincount(chain, accepted, minlength=len(start)).astype(np.int64)
    return Chains(names, prompt[start], anchor[start], length, rows["loop"].to_numpy(bool)[start])


def chain_order(prompt: Ints, anchor: Ints, step: Ints | None = None) -> tuple[Ints, NDArray[np.bool_]]:
    """The order of rows by prompt, anchor (and step), and where in it a chain begins."""
    key = prompt * (int(anchor.max()) + 1 if len(anchor) else 1) + anchor
    full = key if step is None else key * (int(step.max()) + 1 if len(step) else 1) + step
    ordered = bool((full[1:] >= full[:-1]).all())
    order = np.arange(len(full)) if ordered else np.argsort(full, kind="stable")
    key = key[order]
    return order, np.concatenate([np.ones(min(len(key), 1), bool), key[1:] != key[:-1]])
