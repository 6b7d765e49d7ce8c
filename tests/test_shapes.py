"""The shapes in annotations are checked while the tests run (tests/conftest.py)."""

from __future__ import annotations

import pytest
import torch
from jaxtyping import TypeCheckError

from driftscope.chain.prefix import last_masses
from driftscope.target.sinks import HasTokens
from tests import tiny


def test_a_wrong_number_of_axes_is_an_error() -> None:
    with pytest.raises(TypeCheckError, match="weights"):
        last_masses(torch.ones(4, 6), 6, 2, torch.zeros(6))


def test_a_wrong_kind_of_number_is_an_error() -> None:
    with pytest.raises(TypeCheckError, match="sink"):
        last_masses(torch.ones(4, 2, 6), 6, 2, torch.zeros(6, dtype=torch.long))


def test_modules_of_torch_are_checked_too() -> None:
    drafter = tiny.drafter(tiny.CONFIG, tiny.weights(tiny.CONFIG))
    with pytest.raises(TypeCheckError):
        drafter.fuse(torch.ones(2, 3, dtype=torch.long))


def test_protocols_are_looked_into() -> None:
    assert not isinstance(object(), HasTokens)
