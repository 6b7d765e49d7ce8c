"""Rotary position embedding of the drafter, with the frequencies that transformers computes."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from driftscope.checkpoints.config import Rope


class Rotary(nn.Module):
    """Rotates queries and keys. `neox` pairs dimension i with i + d/2, `interleaved` pairs 2i with 2i + 1."""

    def __init__(self, rope: Rope, head_dim: int) -> None:
        super().__init__()
        self.size = int(head_dim * rope.partial)
        scaling = dict(rope.scaling or {})
        kind = scaling.pop("rope_type", None) or scaling.pop("type", None) or "default"
        # vLLM's name for YaRN with DeepSeek's mscale, which transformers reads off the same keys.
        kind = {"deepseek_yarn": "yarn"}.get(kind, kind)
        config = LlamaConfig(
            hidden_size=self.size,
            num_attention_heads=1,
            head_dim=self.size,
            max_position_embeddings=rope.max_position,
            rope_parameters={"rope_type": kind, "rope_theta": rope.theta, **scaling},
        )
        self.table = LlamaRotaryEmbedding(config)
        self.interleaved = rope.layout == "interleaved"

    def forward(
        self, x: Float[Tensor, "row head dim"], positions: Int[Tensor, " row"]
    ) -> Float[Tensor, "row head dim"]:
        wide = x.float()
        cos, sin = self.table(wide, positions[None])
        half = self.size // 2
        cos, sin = cos[0, :, None, :half], sin[0, :, None, :half]  # [row, 1, size/2]
        turned, rest = wide[..., : self.size], wide[..., self.size :]
        if self.interleaved:
            first, second = turned[..., 0::2], turned[..., 1::2]
            turned = torch.stack([first * cos - second * sin, second * cos + first * sin], -1).flatten(-2)
        else:
            first, second = turned[..., :half], turned[..., half:]
            turned = torch.cat([first * cos - second * sin, second * cos + first * sin], -1)
        return torch.cat([turned, rest], -1).to(x.dtype)
