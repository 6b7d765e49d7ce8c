"""Weights in the blocked layout of torch's oneDNN, in which a CPU multiplies few rows in up to half the time.

The library that torch multiplies float32 with otherwise reorders a weight for every product anew.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

LIMIT = 2 << 30
"""Bytes of a target's weights beyond which no second copy of them is made."""


def pack(weight: Float[Tensor, "out width"]) -> Tensor:
    """A copy, opaque to anything but product()."""
    packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight.detach())
    return packed


def product(x: Float[Tensor, "*row width"], packed: Tensor, bias: Tensor | None) -> Float[Tensor, "*row out"]:
    """x @ weight.T + bias."""
    made: Tensor = torch.ops.mkldnn._linear_pointwise(x, packed, bias, "none", [], "")
    return made


@cache
def works() -> bool:
    """Whether this torch has oneDNN's linear layer, under the names that its compiler uses."""
    if not torch.backends.mkldnn.is_available():
        return False
    weight, x = torch.arange(12.0).view(3, 4), torch.arange(8.0).view(2, 4)
    try:
        made = product(x, pack(weight), None)
    except (AttributeError, RuntimeError, NotImplementedError, TypeError):
        return False
    return torch.equal(made, F.linear(x, weight))


def on_cpu(tensor: Tensor) -> bool:
    """Float32 and on a CPU."""
    return tensor.dtype == torch.float32 and tensor.device.type == "cpu"


@contextlib.contextmanager
def packed_products(model: nn.Module) -> Iterator[None]:
    """Within it the linear layers of `model` multiply with packed weights, where these are float32 on a CPU, all together
    below LIMIT, and no gradient is taken. The copies are made at first use and go with it; the model stays as it is."""
    weights = [module.weight for module in model.modules() if type(module) is nn.Linear and on_cpu(module.weight)]
    size = sum(weight.nbytes for weight in {id(weight): weight for weight in weights}.values())
    if not weights or size > LIMIT or not torch.backends.mkldnn.enabled or not works():
        yield
        return
    with _Packed({id(weight) for weight in weights}):
        yield


class _Packed(TorchFunctionMode):
    """Catches the linear layers whose weights are named."""

    def __init__(self, weights: set[int]) -> None:
        super().__init__()
        self.weights = weights
        self.packed: dict[int, Tensor] = {}

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is F.linear and not kwargs and id(args[1]) in self.weights:
            x, weight, bias = (*args, None)[:3]
            if on_cpu(x) and not torch.is_grad_enabled():
                if id(weight) not in self.packed:
                    self.packed[id(weight)] = pack(weight)
                return product(x, self.packed[id(weight)], bias)
        return func(*args, **(kwargs or {}))
