"""Less at once where the accelerator's memory is too small, and a line that says so."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TypeVar

import torch

from driftscope.errors import DriftscopeError

Given = TypeVar("Given")
Made = TypeVar("Made")


def smaller(size: int, what: str) -> int:
    """Half of `size`, after memory ran out; DriftscopeError where there is nothing left to halve."""
    if size <= 1:
        raise DriftscopeError(
            f"out of memory with a single {what}; choose a smaller --dtype or --max-new-tokens, or put the target elsewhere"
            " (--device-map, --drafter-device)"
        )
    torch.cuda.empty_cache()
    half = size // 2
    warnings.warn(f"out of memory with {size} of {what} at once: going on with {half}", stacklevel=3)
    return half


def chunked(count: int, size: int, work: Callable[[slice], Made], what: str) -> list[Made]:
    """`work` on 0..count in chunks of `size`, smaller from where memory runs out; what was done is kept."""
    made: list[Made] = []
    start = 0
    while start < count:
        rows = slice(start, min(start + size, count))
        done = _tried(work, rows)
        if done is None:
            size = smaller(rows.stop - start, what)
            continue
        made += done
        start = rows.stop
    return made


def with_budget(budget: int, work: Callable[[int], Made], what: str) -> Made:
    """`work` with so many bytes to spend at once, again with half of them where memory runs out."""
    while True:
        done = _tried(work, budget)
        if done is not None:
            return done[0]
        budget = smaller(budget >> 20, f"MiB of {what}") << 20


def _tried(work: Callable[[Given], Made], given: Given) -> list[Made] | None:
    """None where memory ran out. By the time that this returns, the tensors of what failed are gone."""
    try:
        return [work(given)]
    except torch.OutOfMemoryError:
        return None
