"""The drafter: one parametric module for every published family, described by its DrafterConfig."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from driftscope.checkpoints.config import DrafterConfig
from driftscope.drafter.attention import Window
from driftscope.drafter.fc import FcMLP
from driftscope.drafter.layer import Attend, DrafterLayer
from driftscope.drafter.linear import Linear
from driftscope.drafter.norms import RMSNorm
from driftscope.drafter.site import Site


class Drafter(nn.Module):
    """fuse() makes the first state from target features, step() makes logits and the carry from a state and a token.

    Row i pairs embed(token i+1) with the features of position i and predicts token i+2. Sites are submodules; `first_sites`
    fire on the first step of a chain only, `step_sites` once every step, both in the order of the forward pass.
    """

    layers: Any
    """nn.ModuleList of DrafterLayer, or of TargetLayer where the block is the target's own decoder layer."""
    fused: Site
    state: Site
    embed: Site
    embed_norm: Site
    state_norm: Site
    layer_input: Site
    residual: Site
    final_norm: Site
    carry: Site
    logits: Site
    target_ids: Int[Tensor, " draft_vocab"]
    """Target id of every draft id."""

    def __init__(self, config: DrafterConfig) -> None:
        super().__init__()
        self.config = config
        hidden, wide = config.hidden_size, config.target_hidden_size
        self.embed_tokens = nn.Embedding(config.vocab_size, hidden)
        inputs = config.num_aux * wide if config.feature_source == "aux" else wide
        if not config.fuses:
            inputs = 2 * hidden
        if config.input_norm:
            self.input_norm = RMSNorm(inputs, config.rms_norm_eps, config.norm_offset)
        if config.fc_norm:
            self.fc_norm = nn.ModuleList(
                RMSNorm(wide, config.rms_norm_eps, config.norm_offset) for _ in range(config.num_aux)
            )
        if config.fc:
            self.fc = Linear(inputs, hidden, bias=config.fc_bias)
        if config.fc_mlp:
            self.fc_mlp = FcMLP(config)
        if not config.carries and config.layer_form == "eagle3":
            self.mask_hidden = nn.Parameter(torch.zeros(1, 1, inputs), requires_grad=False)
        if config.layer_form == "mtp":
            self.enorm = RMSNorm(hidden, config.rms_norm_eps, config.norm_offset)
            self.hnorm = RMSNorm(hidden, config.rms_norm_eps, config.norm_offset)
        layer = DrafterLayer if config.layer_config is None else target_layer()
        self.layers = nn.ModuleList(layer(config, index) for index in range(config.num_layers))
        if config.final_norm or config.carry == "post":
            self.norm = RMSNorm(hidden, config.rms_norm_eps, config.norm_offset)
        self.lm_head = Linear(hidden, config.draft_vocab_size, bias=False)
        self.register_buffer("target_ids", torch.arange(config.draft_vocab_size), persistent=False)

        aux = range(config.num_aux) if config.feature_source == "aux" else ()
        self.aux = nn.ModuleList(Site() for _ in aux)
        self.aux_norm = nn.ModuleList(Site() for _ in aux) if config.fc_norm else nn.ModuleList()
        self.first_sites: tuple[str, ...] = (
            *(f"aux.{i}" for i in range(len(self.aux))),
            *(f"aux_norm.{i}" for i in range(len(self.aux_norm))),
            "fused",
        )
        self.step_sites: tuple[str, ...] = (
            *self.entry_sites(),
            *(f"layers.{layer.index}.{name}" for layer in self.layers for name in layer.SITES),
            "residual",
            *(("final_norm",) if hasattr(self, "norm") else ()),
            *(("carry",) if config.carries else ()),
            "logits",
        )
        for name in ("fused", *(name for name in self.step_sites if "." not in name)):
            self.add_module(name, Site())

    def entry_sites(self) -> tuple[str, ...]:
        """Sites of a step before its first layer, in the order of the forward pass."""
        form = self.config.layer_form
        norms = () if form == "eagle1" else ("embed_norm", "state_norm")
        return ("state", "embed", *norms, *(() if form == "eagle3" else ("layer_input",)))

    def fuse(self, features: Float[Tensor, "row width"]) -> Float[Tensor, "row hidden"]:
        """The state that step 1 starts from. Norms and fc apply here only, never to a carried state."""
        return self.fused(self._combined(features, self.aux, self.aux_norm))

    def mask_state(self) -> Float[Tensor, "1 hidden"]:
        """The state that stands for an unknown one in P-EAGLE, from the learned mask features. No site fires."""
        plain = [nn.Identity()] * self.config.num_aux
        return self._combined(self.mask_hidden[0], plain, plain)

    def _combined(self, features: Tensor, aux: Iterable[Any], aux_norm: Iterable[Any]) -> Tensor:
        config = self.config
        if config.feature_source == "aux":
            parts = [site(part) for site, part in zip(aux, features.chunk(config.num_aux, -1), strict=True)]
            if config.input_norm:
                parts = list(self.input_norm(torch.cat(parts, -1)).chunk(config.num_aux, -1))
            if config.fc_norm:
                normed = [norm(part) for norm, part in zip(self.fc_norm, parts, strict=True)]
                parts = [site(part) for site, part in zip(aux_norm, normed, strict=True)]
            features = torch.cat(parts, -1)
        elif config.input_norm and config.fuses:
            features = self.input_norm(features)
        return self.fc(features) if config.fc and config.fuses else features

    def step(
        self,
        state: Float[Tensor, "row hidden"],
        token_ids: Int[Tensor, " row"],
        positions: Int[Tensor, " row"],
        attend: Attend,
    ) -> Float[Tensor, "row out"]:
        """The residual after the last layer, [row, hidden]; of a wide output [row, 2 hidden]."""
        config = self.config
        state = self.state(state)
        embed = self.embed_tokens(token_ids)
        if config.embed_scale != 1:
            embed = embed * config.embed_scale
        if config.mask_first_embed:
            embed = embed.masked_fill((positions == 0)[:, None], 0)
        embed = self.embed(embed)
        first = self.layers[0]
        if config.layer_form == "eagle3":
            embed = self.embed_norm(first.input_layernorm(embed))
            inner = first.input_layernorm(state) if config.double_norm else state
            normed = self.state_norm(first.hidden_norm(inner) if config.state_norm else inner)
            pair = [embed, normed]
            attention_input = torch.cat(pair if config.embed_first else pair[::-1], -1)
            residual = normed if config.residual == "normed" else state
        else:
            if config.layer_form == "mtp":
                embed, state = self.embed_norm(self.enorm(embed)), self.state_norm(self.hnorm(state))
            pair = [embed, state] if config.embed_first else [state, embed]
            combined = self.fc(torch.cat(pair, -1))
            if config.fc_mlp:
                combined = combined + self.fc_mlp(combined, embed)
            residual = self.layer_input(combined)
            attention_input = first.read(residual)
        for layer in self.layers:
            if layer.index > 0:
                attention_input = layer.read(residual)
            residual = layer(attention_input, residual, positions, attend)
        return self.residual(residual)

    def finish(self, residual: Float[Tensor, "row out"]) -> tuple[Tensor, Tensor]:
        """carry [row, hidden] and logits [row, draft_vocab] of a step. What is not carried on is no site."""
        carry, top = self.leave(residual)
        carry = self.carry(carry) if self.config.carries else carry
        logits, scale = self.lm_head(top), self.config.logit_scale
        return carry, self.logits(logits if scale == 1 else logits * scale)

    def leave(self, residual: Float[Tensor, "row out"]) -> tuple[Tensor, Tensor]:
        """What is carried and what the head reads."""
        first, second = residual.chunk(2, -1) if self.config.wide_output else (residual, residual)
        normed = self.final_norm(self.norm(first)) if hasattr(self, "norm") else first
        carried = {"pre": first, "post": normed, "second": second, "none": first}
        return carried[self.config.carry], normed if self.config.final_norm else first

    @property
    def windows(self) -> list[Window]:
        """Per layer, what the config lets a query see."""
        config = self.config
        sizes = config.sliding_window or (None,) * config.num_layers
        if config.draft_kv == "step":
            sizes = (1,) * config.num_layers
        return [Window(size, fresh=config.draft_kv == "round") for size in sizes]

    @property
    def max_steps(self) -> int | None:
        """How many steps it can draft; None for any number."""
        return None

    @property
    def learned_sinks(self) -> bool:
        """Whether attention rows may sum to less than 1."""
        return any(layer.sink_logits is not None for layer in self.layers)

    @property
    def device(self) -> torch.device:
        return self.lm_head.weight.device

    @property
    def dtype(self) -> torch.dtype:
        return self.lm_head.weight.dtype


def target_layer() -> Any:
    """TargetLayer, whose module takes long to import and is seldom needed."""
    from driftscope.drafter.target_layer import TargetLayer

    return TargetLayer
