"""One decoder layer of a drafter, every quantity of interest a site."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers.activations import ACT2FN

from driftscope.checkpoints.config import DrafterConfig
from driftscope.drafter.linear import Linear
from driftscope.drafter.mla import LatentAttention
from driftscope.drafter.norms import RMSNorm
from driftscope.drafter.rope import Rotary
from driftscope.drafter.site import Site


@runtime_checkable
class AttentionLayer(Protocol):
    """What `Attend` may read of a layer."""

    index: int
    scaling: float
    attention: Site

    @property
    def sink_logits(self) -> Float[Tensor, " head"] | None: ...


Attend = Callable[[Any, Tensor, Tensor, Tensor], Tensor]
"""(AttentionLayer, query, key, value), each [row, head, dim] -> [row, head, value dim]. May raise KeysDoneError."""


class KeysDoneError(Exception):
    """Ends a pass inside its last layer, where nothing but its keys and values was wanted."""


SITES = ("q", "k", "v", "attention", "attn_update", "after_attn", "mlp_update")
"""Sites of a layer in the order of its forward pass."""


class SelfAttention(nn.Module):
    """The projections of a layer; the attention itself is handed in."""

    def __init__(self, config: DrafterConfig, input_size: int) -> None:
        super().__init__()
        width, kv_width = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
        self.head_dim, self.scaling = config.head_dim, config.head_dim**-0.5
        self.gated = config.gated_attention
        self.q_proj = Linear(input_size, width * (1 + self.gated), bias=config.attention_bias)
        self.k_proj = Linear(input_size, kv_width, bias=config.attention_bias)
        self.v_proj = Linear(input_size, kv_width, bias=config.attention_bias)
        self.o_proj = Linear(width, config.hidden_size, bias=config.output_bias)
        if config.qk_norm:
            self.q_norm = RMSNorm(config.head_dim, config.rms_norm_eps, config.norm_offset)
            self.k_norm = RMSNorm(config.head_dim, config.rms_norm_eps, config.norm_offset)

    def project(
        self, x: Float[Tensor, "row width"], rotary: Rotary, positions: Int[Tensor, " row"]
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Query and key after rope, value, each [row, head, dim]; and the gate [row, head dim], where there is one."""
        query, gate = self.q_proj(x).unflatten(-1, (-1, self.head_dim * (1 + self.gated))), None
        if self.gated:
            query, gate = query.chunk(2, -1)
        key = self.k_proj(x).unflatten(-1, (-1, self.head_dim))
        value = self.v_proj(x).unflatten(-1, (-1, self.head_dim))
        if hasattr(self, "q_norm"):
            query, key = self.q_norm(query), self.k_norm(key)
        return rotary(query, positions), rotary(key, positions), value, gate


class MLP(nn.Module):
    """down(act(gate(x)) * up(x))."""

    def __init__(self, config: DrafterConfig, width: int) -> None:
        super().__init__()
        hidden, inner, bias = config.hidden_size, config.intermediate_size, config.mlp_bias
        self.gate_proj = Linear(hidden, inner, bias=bias)
        self.up_proj = Linear(hidden, inner, bias=bias)
        self.down_proj = Linear(inner, width, bias=bias)
        self.act = ACT2FN[config.hidden_act]

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(self.act(self.gate_proj(x)) * self.up_proj(x))


class DrafterLayer(nn.Module):
    """Layer `index`. Layer 0 of an EAGLE-3 drafter reads [embed, state] of width 2H; later layers read their residual."""

    SITES = SITES
    float32: tuple[str, ...] = ()
    """Patterns of tensors that stay in float32 whatever the drafter's dtype."""

    q: Site
    k: Site
    v: Site
    attention: Site
    attn_update: Site
    after_attn: Site
    mlp_update: Site

    def __init__(self, config: DrafterConfig, index: int) -> None:
        super().__init__()
        self.index = index
        hidden = config.hidden_size
        wide = index == 0 and config.layer_form == "eagle3"
        latent = config.kv_lora_rank is not None
        self.self_attn = (LatentAttention if latent else SelfAttention)(config, 2 * hidden if wide else hidden)
        self.scaling: float = self.self_attn.scaling
        if config.learned_sinks:
            self.self_attn.sinks = nn.Parameter(torch.zeros(config.num_heads), requires_grad=False)
        self.widened = config.wide_output and index == config.num_layers - 1
        self.mlp = MLP(config, 2 * hidden if self.widened else hidden)
        self.later_norm = config.later_layer_norm if index > 0 else "input_layernorm"
        if not (index == 0 and config.layer_form == "eagle1"):
            self.add_module(self.later_norm, self._norm(config))
        if wide and config.state_norm:
            self.hidden_norm = self._norm(config)
        self.post_attention_layernorm = self._norm(config)
        self.rotary = Rotary(config.rope, config.qk_rope_head_dim or config.head_dim)
        for name in self.SITES:
            self.add_module(name, Site())

    @staticmethod
    def _norm(config: DrafterConfig) -> RMSNorm:
        return RMSNorm(config.hidden_size, config.rms_norm_eps, config.norm_offset)

    @property
    def sink_logits(self) -> Float[Tensor, " head"] | None:
        """Learned logits that take part in the softmax and have no value."""
        return getattr(self.self_attn, "sinks", None)

    def read(self, residual: Float[Tensor, "row hidden"]) -> Float[Tensor, "row hidden"]:
        """What attention reads of the residual, in a layer that reads nothing else."""
        return getattr(self, self.later_norm)(residual) if hasattr(self, self.later_norm) else residual

    def forward(
        self,
        attention_input: Float[Tensor, "row width"],
        residual: Float[Tensor, "row hidden"],
        positions: Int[Tensor, " row"],
        attend: Attend,
    ) -> Float[Tensor, "row out"]:
        """The residual after this layer, [row, hidden]; of a wide output [row, 2 hidden]."""
        query, key, value, gate = self.self_attn.project(attention_input, self.rotary, positions)
        context = attend(self, self.q(query), self.k(key), self.v(value))
        if gate is not None:
            context = context * gate.sigmoid()
        update = self.attn_update(self.self_attn.o_proj(context.flatten(1)))
        after = self.after_attn(residual + update)
        update = self.mlp_update(self.mlp(self.post_attention_layernorm(after)))
        return (after.repeat(1, 2) if self.widened else after) + update

    def restore_buffers(self, config: DrafterConfig, device: torch.device | str) -> None:
        """Make again what a module built on the meta device has lost and no checkpoint stores."""
        self.rotary = Rotary(config.rope, config.qk_rope_head_dim or config.head_dim).to(device)
