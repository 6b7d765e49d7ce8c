"""Everything in float64, also what the code under test asks for in float32: then rounding explains no difference above 1e-10.

Drafter, chain and transformers' layers widen bfloat16 to float32 by name (norms, softmax, rope). Inside `doubled` those
names stand for float64, in every thread, so that the same lines run with 29 more bits. Packed weights, which are float32
only, take no part.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

SINGLE, DOUBLE = torch.float32, torch.float64


def wider(value: Any) -> Any:
    """float64 for float32, anything else as it is."""
    return DOUBLE if value is SINGLE else value


@contextlib.contextmanager
def unpacked() -> Iterator[None]:
    """Without oneDNN, and so without packed weights (`driftscope.drafter.onednn`)."""
    before = torch.backends.mkldnn.enabled
    # The context manager of torch sets TF32 as well, and warns about it.
    torch._C._set_mkldnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(before)


@contextlib.contextmanager
def doubled() -> Iterator[None]:
    """float64 wherever the code inside says float32 or leaves the dtype to torch."""
    plain = Tensor.to

    def to(self: Tensor, *args: Any, **named: Any) -> Tensor:
        # A dtype that a function took as its default was bound before the names changed.
        return plain(self, *map(wider, args), **{name: wider(value) for name, value in named.items()})

    with pytest.MonkeyPatch.context() as patch, unpacked():
        patch.setattr(Tensor, "to", to)
        patch.setattr(Tensor, "float", Tensor.double)
        for name in ("float32", "float"):
            patch.setattr(torch, name, DOUBLE)
        torch.set_default_dtype(DOUBLE)
        try:
            yield
        finally:
            torch.set_default_dtype(SINGLE)
