"""The target's own decoder layer as a layer of the drafter, its attention dispatched to the chain's."""

from __future__ import annotations

from functools import partial
from typing import Any

from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import AttentionInterface

from driftscope.checkpoints.config import DrafterConfig
from driftscope.checkpoints.families.decoder_layer import decoder_layer, transformers_config
from driftscope.drafter.layer import SITES, Attend
from driftscope.drafter.site import Site

ATTENTION = "driftscope_chain"
"""Name under which the chain's attention is registered with transformers."""


def chain_interface(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, *, chain: Any, **_: Any
) -> tuple[Tensor, None]:
    """transformers' attention interface: [1, head, row, dim] in, [1, row, head, dim] out. The mask is the chain's."""
    return chain(*(part[0].transpose(0, 1) for part in (query, key, value)))[None], None


AttentionInterface.register(ATTENTION, chain_interface)


class TargetLayer(nn.Module):
    """Wraps transformers' decoder layer, which runs unchanged, MoE, latents, gates and all.

    q, k and v are sites inside its attention function; its own modules hand attn_update, after_attn and mlp_update to
    sites by forward hooks. It reads its residual and norms it itself.
    """

    SITES = SITES

    q: Site
    k: Site
    v: Site
    attention: Site
    attn_update: Site
    after_attn: Site
    mlp_update: Site
    self_attn: nn.Module
    post_attention_layernorm: nn.Module
    mlp: nn.Module
    layer: Any

    def __init__(self, config: DrafterConfig, index: int) -> None:
        super().__init__()
        self.index = index
        layer, rotary, self.float32 = decoder_layer(config)
        layer.self_attn.config._attn_implementation = ATTENTION
        # Its parts are ours, so that tensors keep the names that they have in the target; the shell only runs them.
        object.__setattr__(self, "layer", layer.eval())
        for name, part in layer.named_children():
            self.add_module(name, part)
        self.rotary = rotary
        self.scaling: float = layer.self_attn.scaling
        for name in self.SITES:
            self.add_module(name, Site())
        self.self_attn.register_forward_hook(self._attn_update)
        self.post_attention_layernorm.register_forward_pre_hook(self._after_attn)
        self.mlp.register_forward_hook(self._mlp_update)
        self.moved: Tensor | float = 0.0

    @property
    def sink_logits(self) -> Float[Tensor, " head"] | None:
        """Learned logits that take part in the softmax and have no value."""
        return getattr(self.self_attn, "sinks", None)

    def read(self, residual: Float[Tensor, "row hidden"]) -> Float[Tensor, "row hidden"]:
        """The residual: the layer norms it itself."""
        return residual

    def forward(
        self,
        attention_input: Float[Tensor, "row hidden"],
        residual: Float[Tensor, "row hidden"],
        positions: Int[Tensor, " row"],
        attend: Attend,
    ) -> Float[Tensor, "row hidden"]:
        """The residual after this layer."""
        rows, places = residual[None], positions[None]
        out = self.layer(
            rows,
            attention_mask=rows.new_zeros(1, 1, 1, 1),
            position_ids=places,
            position_embeddings=self.rotary(rows, places),
            use_cache=False,
            chain=partial(self._chain, attend),
        )
        return (out[0] if isinstance(out, tuple) else out)[0] + self.moved

    def _chain(self, attend: Attend, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return attend(self, self.q(query), self.k(key), self.v(value))

    def _attn_update(self, module: nn.Module, args: Any, output: Any) -> Any:
        return (self.attn_update(output[0][0])[None], *output[1:])

    def _after_attn(self, module: nn.Module, args: Any) -> Any:
        """The layer adds its MLP to what it summed itself: what a hook changed here is added at its end."""
        summed = args[0][0]
        seen = self.after_attn(summed)
        self.moved = 0.0 if seen is summed else seen - summed
        return (seen[None], *args[1:])

    def _mlp_update(self, module: nn.Module, args: Any, output: Any) -> Any:
        if isinstance(output, tuple):
            return (self.mlp_update(output[0][0])[None], *output[1:])
        return self.mlp_update(output[0])[None]

    def restore_buffers(self, config: DrafterConfig, device: Any) -> None:
        """Make again what a module built on the meta device has lost and no checkpoint stores."""
        self.rotary = type(self.rotary)(transformers_config(config)).to(device)
