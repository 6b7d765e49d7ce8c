"""Linear layers as fast as the CPU allows."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from driftscope.drafter.onednn import linear, pack, packable, product, works


class Linear(nn.Linear):
    """nn.Linear that on a CPU, without gradients, keeps a packed copy of its weight (`driftscope.drafter.onednn`).

    The copy follows the weight: a changed or replaced one is packed again. `torch.backends.mkldnn.flags(enabled=False)` turns
    it off.
    """

    _packed: tuple[Tensor, int, Tensor] | None = None
    """The weight that was packed, held so that no other can take its address; its version then; the copy."""

    def forward(self, x: Float[Tensor, "*row width"]) -> Float[Tensor, "*row out"]:
        packed = self._copy(x)
        return linear(x, self.weight, self.bias) if packed is None else product(x, packed, self.bias)

    def _copy(self, x: Tensor) -> Tensor | None:
        weight = self.weight
        if not packable(weight):
            self._packed = None
            return None
        plain = torch.is_grad_enabled() or weight.is_inference() or not torch.backends.mkldnn.enabled
        if plain or not packable(x) or x.dtype != weight.dtype or not works(weight.dtype):
            return None
        if self._packed is not None:
            held, version, packed = self._packed
            if held.data_ptr() == weight.data_ptr() and version == weight._version:
                return packed
            # Free the old copy before packing the new one.
            self._packed = None
        packed = pack(weight)
        self._packed = weight.detach(), weight._version, packed
        return packed

    def __getstate__(self) -> dict[str, Any]:
        """Without the copy, which can be neither pickled nor copied."""
        return {name: value for name, value in self.__dict__.items() if name != "_packed"}
