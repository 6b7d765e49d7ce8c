from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftscope.target.loops import loop_mask


def by_definition(ids: list[int], start: int) -> list[bool]:
    """Every stretch of at least three whole blocks, tried one by one."""
    mask = [False] * len(ids)
    for period in range(1, 33):
        for begin in range(start, len(ids) - 3 * period + 1):
            end = begin + period
            while end < len(ids) and ids[end] == ids[end - period]:
                end += 1
            if end - begin >= 3 * period:
                mask[begin:end] = [True] * (end - begin)
    return mask


@pytest.mark.parametrize("period", [1, 2, 7, 32])
def test_planted_loop_is_found(period: int) -> None:
    lead, block = list(range(1000, 1020)), list(range(period))
    ids = [*lead, *block * 3, *block[: period // 2], 2000, 2001]
    mask = loop_mask(ids, start=5)
    assert np.flatnonzero(mask).tolist() == list(range(20, len(ids) - 2))


def test_two_repeats_and_longer_periods_are_no_loop() -> None:
    block = list(range(10))
    assert not loop_mask([*block, *block, 99]).any()
    assert not loop_mask(list(range(33)) * 3).any()


def test_blocks_in_the_prompt_do_not_count() -> None:
    ids = [7, 8] * 3
    assert loop_mask(ids, start=0).all()
    assert not loop_mask(ids, start=1).any()


def test_random_text_has_none() -> None:
    ids = np.random.default_rng(0).integers(0, 50_000, 2000)
    assert not loop_mask(ids).any()


@pytest.mark.parametrize("ids", [[], [1], [1, 2]])
def test_short_texts(ids: list[int]) -> None:
    assert loop_mask(ids).tolist() == [False] * len(ids)


@given(st.lists(st.integers(0, 2), max_size=40), st.integers(0, 10))
def test_equals_the_definition(ids: list[int], start: int) -> None:
    assert loop_mask(ids, start).tolist() == by_definition(ids, start)
