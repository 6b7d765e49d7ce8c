"""One decoder layer of a drafter, every quantity of interest a site."""

from __future__ import annotations

from collections.abc import Callable

from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers.activations import ACT2FN

from driftscope.checkpoints.config import DrafterConfig
from driftscope.drafter.norms import RMSNorm
from driftscope.drafter.rope import Rotary
from driftscope.drafter.site import Site

Attend = Callable[["DrafterLayer", Tensor, Tensor, Tensor], Tensor]
"""(layer, query, key, value), each [row, head, dim] -> [row, head, dim]."""


class SelfAttention(nn.Module):
    """The projections of a layer; the attention itself is handed in."""

    def __init__(self, config: DrafterConfig, input_size: int) -> None:
        super().__init__()
        width, kv_width = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
        self.q_proj = nn.Linear(input_size, width, bias=config.attention_bias)
        self.k_proj = nn.Linear(input_size, kv_width, bias=config.attention_bias)
        self.v_proj = nn.Linear(input_size, kv_width, bias=config.attention_bias)
        self.o_proj = nn.Linear(width, config.hidden_size, bias=config.output_bias)
        if config.qk_norm:
            self.q_norm = RMSNorm(config.head_dim, config.rms_norm_eps, config.norm_offset)
            self.k_norm = RMSNorm(config.head_dim, config.rms_norm_eps, config.norm_offset)


class MLP(nn.Module):
    """down(act(gate(x)) * up(x))."""

    def __init__(self, config: DrafterConfig) -> None:
        super().__init__()
        hidden, inner, bias = config.hidden_size, config.intermediate_size, config.mlp_bias
        self.gate_proj = nn.Linear(hidden, inner, bias=bias)
        self.up_proj = nn.Linear(hidden, inner, bias=bias)
        self.down_proj = nn.Linear(inner, hidden, bias=bias)
        self.act = ACT2FN[config.hidden_act]

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(self.act(self.gate_proj(x)) * self.up_proj(x))


class DrafterLayer(nn.Module):
    """Layer `index`. Layer 0 of an EAGLE-3 drafter reads [embed, state] of width 2H; later layers read their residual."""

    SITES = ("q", "k", "v", "attention", "attn_update", "after_attn", "mlp_update")

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
        self.head_dim = config.head_dim
        self.scaling = config.head_dim**-0.5
        wide = index == 0 and config.layer_form == "eagle3"
        self.self_attn = SelfAttention(config, 2 * config.hidden_size if wide else config.hidden_size)
        self.mlp = MLP(config)
        if wide or not (index == 0 and config.layer_form == "eagle1"):
            self.input_layernorm = self._norm(config)
        if index > 0 and config.later_layer_norm == "hidden_norm":
            self.hidden_norm = self._norm(config)
        if wide and config.state_norm:
            self.hidden_norm = self._norm(config)
        self.post_attention_layernorm = self._norm(config)
        self.rotary = Rotary(config.rope, config.head_dim)
        for name in self.SITES:
            self.add_module(name, Site())

    @staticmethod
    def _norm(config: DrafterConfig) -> RMSNorm:
        return RMSNorm(config.hidden_size, config.rms_norm_eps, config.norm_offset)

    def forward(
        self,
        attention_input: Float[Tensor, "row width"],
        residual: Float[Tensor, "row hidden"],
        positions: Int[Tensor, " row"],
        attend: Attend,
    ) -> Float[Tensor, "row hidden"]:
        attn = self.self_attn
        query = attn.q_proj(attention_input).unflatten(-1, (-1, self.head_dim))
        key = attn.k_proj(attention_input).unflatten(-1, (-1, self.head_dim))
        value = attn.v_proj(attention_input).unflatten(-1, (-1, self.head_dim))
        if hasattr(attn, "q_norm"):
            query, key = attn.q_norm(query), attn.k_norm(key)
        query = self.q(self.rotary(query, positions))
        key = self.k(self.rotary(key, positions))
        value = self.v(value)
        context = attend(self, query, key, value)
        update = self.attn_update(attn.o_proj(context.flatten(1)))
        after = self.after_attn(residual + update)
        return after + self.mlp_update(self.mlp(self.post_attention_layernorm(after)))
