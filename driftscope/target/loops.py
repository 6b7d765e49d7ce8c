"""Repetition loops in a text: the target repeats itself, and every drafter predicts it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAX_PERIOD = 32
MIN_REPEATS = 3


def loop_mask(
    token_ids: Sequence[int] | NDArray[Any],
    start: int = 0,
    *,
    max_period: int = MAX_PERIOD,
    min_repeats: int = MIN_REPEATS,
) -> NDArray[np.bool_]:
    """Bool[T]: positions at or after `start` inside a stretch that repeats one block of at most `max_period` tokens.

    The stretch must hold at least `min_repeats` whole blocks, all of them at or after `start`; a cut-off last block
    belongs to it. Positions before `start` (the prompt) are never marked.
    """
    ids = np.asarray(token_ids)
    mask = np.zeros(len(ids), dtype=bool)
    text, marked = ids[start:], mask[start:]
    for period in range(1, min(max_period, len(text) // min_repeats) + 1):
        same = np.concatenate(([False], text[period:] == text[:-period], [False]))
        edges = np.flatnonzero(np.diff(same.astype(np.int8)))
        begins, ends = edges[::2], edges[1::2]
        # n blocks in a row are (n - 1) * period tokens that equal the one a period before.
        for begin, end in zip(begins, ends, strict=True):
            if end - begin >= (min_repeats - 1) * period:
                marked[begin : end + period] = True
    return mask
