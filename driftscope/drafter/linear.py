"""Linear layers as fast as the CPU allows."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F


class Linear(nn.Linear):
    """nn.Linear that on a CPU, in float32 and without gradients, keeps its weight in oneDNN's blocked layout too.

    At the 64 to 128 rows of a chain's step the library that torch multiplies with otherwise spends up to a third of its time
    on reordering the weight, every time anew. The copy is as large as the weight and follows it: a changed or replaced
    weight is packed again. `torch.backends.mkldnn.flags(enabled=False)` turns it off.
    """

    _packed: tuple[Tensor, int, Tensor] | None = None
    """The weight that was packed, held so that no other can take its address; its version then; the copy."""

    def forward(self, x: Float[Tensor, "*row width"]) -> Float[Tensor, "*row out"]:
        packed = self._copy(x)
        if packed is None:
            return F.linear(x, self.weight, self.bias)
        product: Tensor = torch.ops.mkldnn._linear_pointwise(x, packed, self.bias, "none", [], "")
        return product

    def _copy(self, x: Tensor) -> Tensor | None:
        weight = self.weight
        if weight.dtype != torch.float32 or weight.device.type != "cpu":
            self._packed = None
            return None
        plain = torch.is_grad_enabled() or weight.is_inference() or not torch.backends.mkldnn.enabled
        if plain or x.dtype != torch.float32 or x.device.type != "cpu" or not works():
            return None
        if self._packed is not None:
            held, version, packed = self._packed
            if held.data_ptr() == weight.data_ptr() and version == weight._version:
                return packed
            # The old copy goes first, lest there be two.
            self._packed = None
        packed = torch.ops.mkldnn._reorder_linear_weight(weight)
        self._packed = weight.detach(), weight._version, packed
        return packed

    def __getstate__(self) -> dict[str, Any]:
        """Without the copy, which can be neither pickled nor copied."""
        return {name: value for name, value in self.__dict__.items() if name != "_packed"}


@cache
def works() -> bool:
    """Whether this torch has oneDNN's linear layer, under the names that its compiler uses."""
    if not torch.backends.mkldnn.is_available():
        return False
    weight, x = torch.arange(12.0).view(3, 4), torch.arange(8.0).view(2, 4)
    try:
        packed = torch.ops.mkldnn._reorder_linear_weight(weight)
        product = torch.ops.mkldnn._linear_pointwise(x, packed, None, "none", [], "")
    except (AttributeError, RuntimeError, NotImplementedError, TypeError):
        return False
    return torch.equal(product, F.linear(x, weight))
