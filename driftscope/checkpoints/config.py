"""DrafterConfig: every switch that decides how a drafter's weights are run, and where each value came from."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

OriginSource = Literal["config", "weights", "default", "user", "target"]


@dataclass(frozen=True)
class Origin:
    """Where the value of a switch came from."""

    source: OriginSource
    """`config`: read in a config file; `weights`: follows from tensors; `default`: a published default; `user`: a flag;
    `target`: taken over from the target."""
    detail: str = ""
    """The config key, tensor name, engine whose default it is, or flag."""


@dataclass(frozen=True)
class Rope:
    """Rotary embedding of the drafter."""

    theta: float = 10000.0
    scaling: Mapping[str, Any] | None = None
    """As in a Hugging Face config (`rope_type`, `factor`, ...), without theta; None for plain rope."""
    layout: Literal["neox", "interleaved"] = "neox"
    partial: float = 1.0
    """Share of each head's dimensions that is rotated."""
    max_position: int = 2048


@dataclass(frozen=True)
class DrafterConfig:
    """The switches of one drafter. Sizes are counts of features; boundaries follow the one convention of driftscope:
    boundary b is the residual stream after b target layers, taken before any norm."""

    # Sizes
    hidden_size: int
    target_hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    """Of the target."""
    draft_vocab_size: int
    num_layers: int = 1

    known_tokens: int | None = None
    """Tokens that the drafter's own embedding has rows for, where the target's vocabulary is padded beyond them; None
    where it has all."""

    # What the drafter reads from the target
    feature_source: Literal["aux", "final"] = "aux"
    """`aux`: boundaries before the final norm, concatenated ascending; `final`: the last hidden state."""
    aux_boundaries: tuple[int, ...] | None = None
    """None until the number of target layers is known, when the published default is (2, n//2, n-3)."""
    aux_ids: tuple[int, ...] | None = None
    """The config's own list, kept where reading it as boundaries or layer outputs takes the number of target layers."""
    num_aux: int = 3
    final_feature_normed: bool = True
    """With feature_source `final`: after (True) or before (False) the target's final norm."""

    # How the features and the embedding become the input of the first layer
    input_norm: bool = False
    """One RMSNorm over the concatenated aux features, before fc (`norm_before_fc`)."""
    fc_norm: bool = False
    """One RMSNorm per aux feature, before fc (EAGLE 3.1)."""
    fc: bool = True
    fc_bias: bool = False
    fc_mlp: bool = False
    """GRIFFIN's second stage behind fc: u + MLP(norm(norm'(u)), norm(embed))."""
    layer_form: Literal["eagle3", "eagle1", "mtp", "dflash"] = "eagle3"
    """`eagle3`: q, k, v read [input_layernorm(embed), hidden_norm(state)] of width 2H; `eagle1`: fc([embed, state])
    every step, no pre-attention norm in layer 0; `mtp`: eh_proj([enorm(embed), hnorm(state)]) into a plain layer;
    `dflash`: plain layers over a block of embeddings, which also attend to k and v made from hidden_norm(fc(features))."""
    embed_first: bool = True
    state_norm: bool = True
    """Whether layer 0 has a norm for the state, hidden_norm (`eagle3`) or hnorm (`mtp`)."""
    residual: Literal["raw", "normed"] = "raw"
    """What layer 0 adds its updates to: the state, or hidden_norm(state) (`norm_before_residual`)."""
    double_norm: bool = False
    """Attention reads hidden_norm(input_layernorm(state)), as some trainers do without meaning to."""
    embed_scale: float = 1.0
    mask_first_embed: bool = False
    """Zero the embedding in the row of position 0, as some engines do in MTP heads; it is where the sink sits."""

    # Layers
    layer_config: Mapping[str, Any] | None = None
    """The target's own decoder layer: its transformers config (`model_type` and what differs from its defaults). None
    for a drafter's layer, which the switches below describe."""
    attention_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    hidden_act: str = "silu"
    rms_norm_eps: float = 1e-6
    norm_offset: float = 0.0
    """1.0 where norms multiply by (1 + w)."""
    later_layer_norm: Literal["input_layernorm", "hidden_norm"] = "input_layernorm"
    sliding_window: tuple[int | None, ...] | None = None
    """Per layer; None is full attention."""
    q_lora_rank: int | None = None
    """Width of the query latent (MLA); None where queries come straight from the input."""
    kv_lora_rank: int | None = None
    """Width of the latent of keys and values; None is attention without latents. With it head_dim is the width of
    queries and keys, of which the last qk_rope_head_dim are rotated, the key's shared by all heads."""
    qk_rope_head_dim: int | None = None
    v_head_dim: int | None = None
    """Width of the values of a head; None is head_dim."""
    learned_sinks: bool = False
    """One learned logit per head that takes part in the softmax and has no value (gpt-oss)."""
    gated_attention: bool = False
    """The output of each head times sigmoid(gate), entry by entry, before o_proj; q_proj gives query and gate of each
    head side by side (Qwen3-Next)."""
    draft_kv: Literal["kept", "round", "step"] = "kept"
    """What a step attends to beside its own row: the prefix rows and the chain's earlier ones; the latter only, the
    KV of the drafter starting empty every round; or nothing, it starting empty every step."""
    rope: Rope = field(default_factory=Rope)
    position_increment: int = 1

    # What leaves a step
    final_norm: bool = True
    """Whether `norm` stands before the head."""
    wide_output: bool = False
    """The last layer ends in 2H: the head reads the first half (GRIFFIN)."""
    carry: Literal["pre", "post", "second", "none"] = "pre"
    """The state handed to the next step: the residual, norm(residual) (`norm_output`, EAGLE 3.1), the second half of
    a wide output (GRIFFIN), or `none`: all steps are drafted at once, from masks (P-EAGLE, DFlash)."""
    mask_token_id: int | None = None
    """Token whose embedding stands where none is known yet; of a drafter that carries nothing."""
    block_size: int | None = None
    """Rows of a block (DFlash): the last known token and masks."""
    sample_from_anchor: bool = False
    """Whether the row of the last known token drafts too, each row the token after its own; else masks draft their own."""
    block_causal: Literal["none", "sliding", "all"] = "sliding"
    """Layers in which a row of a block sees only those before it: those with a window, as in DFlash, none or all."""
    head: Literal["own", "target"] = "own"
    embedding: Literal["own", "target"] = "target"
    logit_scale: float = 1.0
    vocab_map: Literal["none", "offset", "index"] = "none"
    """How d2t is read: target id = draft id + d2t (`offset`), = d2t (`index`), or ids are the target's (`none`)."""

    origins: Mapping[str, Origin] = field(default_factory=dict, compare=False)
    """Switch name -> Origin; dotted for rope (`rope.theta`)."""

    def replace(self, source: OriginSource, detail: str = "", /, **values: Any) -> DrafterConfig:
        """A copy with `values` set and their origin noted. Dotted names (`{"rope.theta": 1e4}`) reach into rope."""
        plain = {name: value for name, value in values.items() if "." not in name}
        rope = {name.partition(".")[2]: value for name, value in values.items() if "." in name}
        if rope:
            plain["rope"] = dataclasses.replace(self.rope, **rope)
        origins = {**self.origins, **{name: Origin(source, detail) for name in values}}
        return dataclasses.replace(self, **plain, origins=origins)

    def switches(self) -> dict[str, Any]:
        """All switches as a flat, JSON-ready dict, rope dotted."""
        flat: dict[str, Any] = {}
        for item in dataclasses.fields(self):
            value = getattr(self, item.name)
            if item.name == "origins":
                continue
            if isinstance(value, Rope):
                for part in dataclasses.fields(value):
                    inner = getattr(value, part.name)
                    flat[f"rope.{part.name}"] = dict(inner) if isinstance(inner, Mapping) else inner
            else:
                flat[item.name] = (
                    list(value) if isinstance(value, tuple) else dict(value) if isinstance(value, Mapping) else value
                )
        return flat

    @property
    def fuses(self) -> bool:
        """Whether fc combines the target's features once, rather than embedding and state at every step."""
        return self.layer_form in ("eagle3", "dflash")

    @property
    def in_blocks(self) -> bool:
        """Whether all steps are drafted at once, as rows of a block."""
        return self.layer_form == "dflash"

    @property
    def carries(self) -> bool:
        """Whether a step takes over the state of the one before."""
        return self.carry != "none"

    @property
    def reduced_vocab(self) -> bool:
        """Whether the drafter has a draft vocabulary smaller than the target's."""
        return self.draft_vocab_size != self.vocab_size
