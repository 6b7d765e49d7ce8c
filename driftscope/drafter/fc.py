"""GRIFFIN's second stage behind fc."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers.activations import ACT2FN

from driftscope.checkpoints.config import DrafterConfig
from driftscope.drafter.linear import Linear
from driftscope.drafter.norms import RMSNorm


class FcMLP(nn.Module):
    """down(act(up([norm(outer_norm(u)), norm(e)]))) of what fc made, u, and the embedding, e; one norm for both.

    Source: GRIFFIN (arXiv 2502.11018) and its released modules.
    """

    def __init__(self, config: DrafterConfig) -> None:
        super().__init__()
        hidden, inner = config.hidden_size, config.intermediate_size
        self.outer_norm = RMSNorm(hidden, config.rms_norm_eps, config.norm_offset)
        self.norm = RMSNorm(hidden, config.rms_norm_eps, config.norm_offset)
        self.up_proj = Linear(2 * hidden, inner, bias=False)
        self.down_proj = Linear(inner, hidden, bias=False)
        self.act = ACT2FN[config.hidden_act]

    def forward(
        self, combined: Float[Tensor, "row hidden"], embed: Float[Tensor, "row hidden"]
    ) -> Float[Tensor, "row hidden"]:
        pair = torch.cat([self.norm(self.outer_norm(combined)), self.norm(embed)], -1)
        return self.down_proj(self.act(self.up_proj(pair)))
