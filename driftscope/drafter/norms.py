"""RMSNorm as drafters use it."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn


class RMSNorm(nn.Module):
    """x / RMS(x) in float32, cast back, times (offset + weight); offset 1 is the (1 + w) form of Gemma and Qwen3-Next."""

    def __init__(self, size: int, eps: float, offset: float = 0.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((size,), 1.0 - offset), requires_grad=False)
        self.eps = eps
        self.offset = offset

    def forward(self, x: Float[Tensor, "... size"]) -> Float[Tensor, "... size"]:
        wide = x.float()
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        if self.offset:
            return (wide * (self.offset + self.weight.float())).to(x.dtype)
        return self.weight * wide.to(x.dtype)


def rms(x: Float[Tensor, "... size"]) -> Float[Tensor, "..."]:
    """Root mean square over the last dimension, in float32 whatever the dtype of x. L2 = RMS * sqrt(size)."""
    return torch.linalg.vector_norm(x, dim=-1, dtype=torch.float32) / x.shape[-1] ** 0.5
