"""Weights in the blocked layout of torch's oneDNN, which otherwise reorders a weight for every product anew.

What that is worth is measured by benchmarks/arithmetic.py.
Half-precision weights are packed as they are where the CPU multiplies such numbers, else as float32.
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

from driftscope.drafter.arithmetic import INSTRUCTIONS, product_dtype

LIMIT = 2 << 30
"""Bytes of copies of a target's weights beyond which none are made."""


def pack(weight: Float[Tensor, "out width"]) -> Tensor:
    """A copy, opaque to anything but product()."""
    packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight.detach().to(product_dtype(weight.dtype)))
    return packed


def product(x: Float[Tensor, "*row width"], packed: Tensor, bias: Tensor | None) -> Float[Tensor, "*row out"]:
    """x @ weight.T + bias, in the dtype of x."""
    bias = None if bias is None else bias.to(packed.dtype)
    made: Tensor = torch.ops.mkldnn._linear_pointwise(x.to(packed.dtype), packed, bias, "none", [], "")
    return made.to(x.dtype)


def linear(x: Float[Tensor, "*row width"], weight: Float[Tensor, "out width"], bias: Tensor | None) -> Tensor:
    """The product without a packed copy. Of a single row it costs nothing to read each weight in its own dtype."""
    wide = product_dtype(x.dtype)
    if x.device.type != "cpu" or wide == x.dtype or x.dtype != weight.dtype or x.shape[:-1].numel() == 1:
        return F.linear(x, weight, bias)
    return F.linear(x.to(wide), weight.to(wide), None if bias is None else bias.to(wide)).to(x.dtype)


@cache
def works(dtype: torch.dtype = torch.float32) -> bool:
    """Whether this torch has oneDNN's linear layer, under the names that its compiler uses, for weights of `dtype`."""
    if not torch.backends.mkldnn.is_available():
        return False
    weight, x = torch.arange(12.0).view(3, 4).to(dtype), torch.arange(8.0).view(2, 4).to(dtype)
    try:
        made = product(x, pack(weight), None)
    except (AttributeError, RuntimeError, NotImplementedError, TypeError):
        return False
    return torch.equal(made, F.linear(x, weight))


def packable(tensor: Tensor) -> bool:
    """On a CPU, in float32 or half precision."""
    return tensor.device.type == "cpu" and (tensor.dtype == torch.float32 or tensor.dtype in INSTRUCTIONS)


@contextlib.contextmanager
def packed_products(model: nn.Module) -> Iterator[None]:
    """Within it the linear layers of `model` on a CPU multiply with packed weights, where the copies are below LIMIT all together
    and no gradient is taken. They are made at first use and go with it; the model stays as it is. Without copies
    half-precision layers multiply in the dtype that suits the CPU."""
    layers = [module for module in model.modules() if type(module) is nn.Linear and packable(module.weight)]
    weights = {id(layer.weight): layer.weight for layer in layers}
    size = sum(weight.numel() * product_dtype(weight.dtype).itemsize for weight in weights.values())
    fits = size <= LIMIT and torch.backends.mkldnn.enabled and all(works(w.dtype) for w in weights.values())
    if not weights or (not fits and all(product_dtype(w.dtype) == w.dtype for w in weights.values())):
        yield
        return
    with _Packed(set(weights), bool(fits)):
        yield


class _Packed(TorchFunctionMode):
    """Catches the linear layers whose weights are named."""

    def __init__(self, weights: set[int], copies: bool) -> None:
        super().__init__()
        self.weights, self.copies = weights, copies
        self.packed: dict[int, Tensor] = {}

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is F.linear and not kwargs and id(args[1]) in self.weights:
            x, weight, bias = (*args, None)[:3]
            if packable(x) and x.dtype == weight.dtype and not torch.is_grad_enabled():
                if not self.copies:
                    return linear(x, weight, bias)
                if id(weight) not in self.packed:
                    self.packed[id(weight)] = pack(weight)
                return product(x, self.packed[id(weight)], bias)
        return func(*args, **(kwargs or {}))
