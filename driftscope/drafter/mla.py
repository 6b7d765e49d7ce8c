"""Multi-head latent attention (MLA) of a drafter, after DeepSeek-V2 (arXiv 2405.04434, section 2.1)."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from driftscope.checkpoints.config import DrafterConfig
from driftscope.drafter.linear import Linear
from driftscope.drafter.norms import RMSNorm
from driftscope.drafter.rope import Rotary


class LatentAttention(nn.Module):
    """Keys and values are made from one latent per row, normed; the rotated part of the key comes beside it and is
    shared by all heads. Latents are expanded at once, so that keys and values are sites like those of any layer."""

    def __init__(self, config: DrafterConfig, input_size: int) -> None:
        super().__init__()
        assert config.kv_lora_rank is not None
        assert config.qk_rope_head_dim is not None
        heads, rank, bias = config.num_heads, config.kv_lora_rank, config.attention_bias
        self.head_dim, self.rope_dim = config.head_dim, config.qk_rope_head_dim
        self.value_dim = config.v_head_dim or config.head_dim
        self.rank = rank
        self.scaling = config.head_dim**-0.5 * mscale(config) ** 2
        if config.q_lora_rank is None:
            self.q_proj = Linear(input_size, heads * self.head_dim, bias=False)
        else:
            self.q_a_proj = Linear(input_size, config.q_lora_rank, bias=bias)
            self.q_a_layernorm = RMSNorm(config.q_lora_rank, config.rms_norm_eps, config.norm_offset)
            self.q_b_proj = Linear(config.q_lora_rank, heads * self.head_dim, bias=False)
        self.kv_a_proj_with_mqa = Linear(input_size, rank + self.rope_dim, bias=bias)
        self.kv_a_layernorm = RMSNorm(rank, config.rms_norm_eps, config.norm_offset)
        self.kv_b_proj = Linear(rank, heads * (self.head_dim - self.rope_dim + self.value_dim), bias=False)
        self.o_proj = Linear(heads * self.value_dim, config.hidden_size, bias=config.output_bias)

    def project(
        self, x: Float[Tensor, "row width"], rotary: Rotary, positions: Int[Tensor, " row"]
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Query and key [row, head, dim], their last rope_dim entries rotated, and value [row, head, value_dim]."""
        plain = self.head_dim - self.rope_dim
        flat = self.q_proj(x) if hasattr(self, "q_proj") else self.q_b_proj(self.q_a_layernorm(self.q_a_proj(x)))
        query = flat.unflatten(-1, (-1, self.head_dim))
        query = torch.cat([query[..., :plain], rotary(query[..., plain:], positions)], -1)
        latent, turned = self.kv_a_proj_with_mqa(x).split([self.rank, self.rope_dim], -1)
        both = self.kv_b_proj(self.kv_a_layernorm(latent)).unflatten(-1, (-1, plain + self.value_dim))
        shared = rotary(turned[:, None], positions).expand(-1, both.shape[1], -1)
        return query, torch.cat([both[..., :plain], shared], -1), both[..., plain:], None


def mscale(config: DrafterConfig) -> float:
    """YaRN's factor on queries and keys, 0.1 m ln(factor) + 1 with m = mscale_all_dim; 1 without one.

    Source: the DeepSeek-V2 and V3 configs, whose softmax scale is dim^-1/2 times its square.
    """
    scaling = config.rope.scaling or {}
    factor, share = scaling.get("factor") or 1.0, scaling.get("mscale_all_dim") or 0.0
    return 0.1 * share * math.log(factor) + 1.0 if factor > 1 else 1.0
