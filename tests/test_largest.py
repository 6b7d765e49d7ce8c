"""The index of the largest score, found block by block."""

from __future__ import annotations

import pytest
import torch

from driftscope.drafter.argmax import largest


@pytest.mark.parametrize("width", [1, 60, 128, 640, 4096])
@pytest.mark.parametrize("rows", [(), (1,), (5,), (2, 3), (0,)])
def test_it_is_argmax(width: int, rows: tuple[int, ...]) -> None:
    scores = torch.randn(*rows, width, generator=torch.Generator().manual_seed(0))
    assert torch.equal(largest(scores), scores.argmax(-1))


def test_the_first_of_equals() -> None:
    scores = torch.zeros(3, 512)
    scores[0, [130, 131, 400]] = 1
    scores[1, :] = float("-inf")
    scores[2, 511] = 1
    assert largest(scores).tolist() == [130, 0, 511]


def test_not_a_number_wins_as_it_does_in_argmax() -> None:
    scores = torch.zeros(1, 512)
    scores[0, 3], scores[0, 300] = 5, float("nan")
    assert largest(scores).tolist() == scores.argmax(-1).tolist() == [300]


def test_views_and_half_precision() -> None:
    scores = torch.randn(512, 6, generator=torch.Generator().manual_seed(1)).bfloat16()
    assert torch.equal(largest(scores.T), scores.T.argmax(-1))
