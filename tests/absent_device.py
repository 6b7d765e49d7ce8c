"""A device that is not there: tensors without values, on which everything that a CUDA device would wait for is an error.

torch's fake tensors refuse what reads a value (`int`, `tolist`, a boolean index, `unique`) and what mixes devices. Copies
between host and device, and what has no deterministic kernel on CUDA, are refused here.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

DEVICE = "meta"
"""Stands for CUDA: fake tensors on `cuda` cannot be indexed where torch was built without it."""
_UNREPEATABLE = {"bincount", "histc", "kthvalue", "median", "put", "put_"}


class WaitsError(Exception):
    """The host would have waited for the device."""


class UnrepeatableError(Exception):
    """With deterministic kernels only, CUDA would have refused."""


class Repeatable(TorchDispatchMode):
    """Refuses operations of a forward pass that `torch.use_deterministic_algorithms` names as refused on CUDA."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.name().removeprefix("aten::").partition(".")[0]
        floats = bool(args) and isinstance(args[0], Tensor) and args[0].is_floating_point()
        if name in _UNREPEATABLE or (name in ("cumsum", "cumsum_") and floats):
            raise UnrepeatableError(f"{name} has no deterministic kernel")
        return func(*args, **(kwargs or {}))


class _NoCopies(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.name().removeprefix("aten::").partition(".")[0]
        if name in ("_to_copy", "copy_"):
            other = args[1].device if name == "copy_" else (kwargs or {}).get("device")
            if other is not None and other != args[0].device:
                raise WaitsError(f"a copy between {args[0].device} and {other}, shape {list(args[0].shape)}")
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def absent_device(fake: FakeTensorMode) -> Iterator[None]:
    """Inside, what is made on DEVICE has no values. WaitsError, UnrepeatableError, or torch's own for mixed devices."""
    try:
        with torch.no_grad(), fake, _NoCopies(), Repeatable():
            yield
    except (DataDependentOutputException, DynamicOutputShapeException) as error:
        raise WaitsError(f"{error} reads values of the device") from error


def put(fake: FakeTensorMode, value: Any) -> Any:
    """A copy of a tensor, module, dataclass or container with its tensors on DEVICE."""
    if isinstance(value, Tensor):
        return fake.from_tensor(value.detach().to(DEVICE))
    if isinstance(value, nn.Module):
        return copy.deepcopy(value)._apply(lambda tensor: put(fake, tensor))
    if isinstance(value, Mapping):
        return {name: put(fake, item) for name, item in value.items()}
    if isinstance(value, list):
        return [put(fake, item) for item in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        moved = copy.copy(value)
        for name, item in vars(value).items():
            object.__setattr__(moved, name, put(fake, item))
        return moved
    return value
