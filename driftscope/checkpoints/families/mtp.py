"""What the MTP layouts have in common: how their switches are resolved. The layout files say where they differ.

An MTP head is eh_proj([enorm(embed), hnorm(state)]), a decoder layer of the target's own kind, a norm, and the target's
head. Configs say nothing of how its steps are chained, and engines disagree: the defaults are those of vLLM 0.32."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from driftscope.checkpoints.config import DrafterConfig, OriginSource
from driftscope.checkpoints.families import eagle3
from driftscope.checkpoints.families.decoder_layer import class_config, layer_config, norm_offset
from driftscope.checkpoints.reading.board import Switchboard
from driftscope.checkpoints.reading.padding import cut
from driftscope.checkpoints.reading.rope import resolve_rope
from driftscope.errors import CheckpointError

_BLOCK = re.compile(r"^(self_attn\.|mlp\.|input_layernorm\.weight$|post_attention_layernorm\.weight$)")
_SPARSE = ("deepseek_v32", "glm_moe_dsa")
ENGINE = "vLLM 0.32"


@dataclass(frozen=True)
class Traits:
    """How current vLLM runs the heads of a layout."""

    carry: str = "post"
    carry_detail: str = f"{ENGINE}: the normed state is fed back"
    mask_first_embed: bool = False
    mask_detail: str = f"{ENGINE}: every row keeps its embedding"
    embed_first: bool = True


def block_name(rest: str) -> str | None:
    """Canonical name of a tensor of the block, or None for one that is not run."""
    return f"layers.0.{rest}" if _BLOCK.match(rest) and ".indexer." not in rest else None


def model_type(board: Switchboard) -> str:
    """That of the checkpoint's config, else the target's."""
    return str(board.raw.get("model_type") or getattr(board.target, "model_type", ""))


def text_part(raw: Mapping[str, Any]) -> dict[str, Any]:
    """A target's config with that of its language model at the top, where it wraps one."""
    inner = raw.get("text_config")
    return {**raw, **inner} if isinstance(inner, Mapping) else dict(raw)


def resolve(board: Switchboard, traits: Traits) -> None:
    """Put every switch of an MTP head.

    Raises:
        CheckpointError: tensors or config values that contradict each other, or no config that says what the block is.
    """
    source: OriginSource = "config" if board.raw.get("model_type") is not None else "target"
    raw = board.raw = _target_config(board)
    made = class_config(raw)
    board.put("layer_config", layer_config(raw), source, str(raw["model_type"]))
    _resolve_form(board, traits)
    _resolve_rope(board, made)
    _resolve_sizes(board, made, source)
    _resolve_chain(board, traits)
    if raw["model_type"] in _SPARSE:
        board.warnings.append(
            f"{raw['model_type']} picks the keys of a row by an indexer, which is not run: all rows are seen, the same"
            f" up to index_topk ({raw.get('index_topk', 2048)}) rows"
        )


def _target_config(board: Switchboard) -> Mapping[str, Any]:
    """The config that the block follows from: the checkpoint's, else the target's."""
    if board.raw.get("model_type") is not None:
        return board.raw
    to_dict = getattr(board.target, "to_dict", None)
    if to_dict is None:
        raise CheckpointError(
            "an MTP head's block is a layer of its target, and no config says of which model: put config.json beside"
            " it, or give --target"
        )
    return to_dict()


def _resolve_form(board: Switchboard, traits: Traits) -> None:
    board.put("layer_form", "mtp", "weights", "norms for embedding and state before fc")
    board.put("feature_source", "final", "default", "MTP")
    board.put("final_feature_normed", True, "default", f"{ENGINE}: after the target's final norm")
    board.put("num_aux", 1, "default", "MTP")
    rows, width = board.shape("fc.weight")
    if width != 2 * rows:
        raise CheckpointError(f"fc.weight is {rows} x {width}, expected {rows} x {2 * rows}: embedding and state")
    stated = board.number("hidden_size")
    if stated and stated[0] != rows:
        raise CheckpointError(f"fc.weight has {rows} rows, but the config says hidden_size = {stated[0]}")
    for switch in ("hidden_size", "target_hidden_size"):
        board.put(switch, rows, *(("config", "hidden_size") if stated else ("weights", "rows of fc.weight")))
    board.put("num_layers", 1, "weights", "one head")
    board.put("fc", True, "weights", "fc.weight")
    board.put("fc_bias", board.has("fc.bias"), "weights", "fc.bias" if board.has("fc.bias") else "no fc.bias")
    first = board.flag("mtp_hidden_states_first")
    if first:
        board.put("embed_first", not first[0], "config", first[1])
    else:
        board.put("embed_first", traits.embed_first, "default", "the layout")


def _resolve_rope(board: Switchboard, made: Any) -> None:
    """Rope as the config says; what it leaves out are the defaults of its class."""
    own = made.rope_parameters
    resolve_rope(
        board,
        default_theta=(own["rope_theta"], "config class"),
        default_max=getattr(made, "max_position_embeddings", None),
    )
    if board.origins["rope.partial"].source == "default":
        board.put("rope.partial", float(own.get("partial_rotary_factor", 1.0)), "default", "config class")
    latent = getattr(made, "kv_lora_rank", None) is not None
    interleaved = getattr(made, "rope_interleave", latent)
    board.put("rope.layout", "interleaved" if interleaved else "neox", "default", f"the layer of {made.model_type}")


def _resolve_sizes(board: Switchboard, made: Any, source: OriginSource) -> None:
    latent = getattr(made, "kv_lora_rank", None) is not None
    heads = made.num_attention_heads
    # Of a class without one, the attribute is what the target's config happens to hold.
    dense = any(item.name == "intermediate_size" for item in dataclasses.fields(made))
    width = made.qk_nope_head_dim + made.qk_rope_head_dim if latent else getattr(made, "head_dim", None)
    for switch, value, detail in (
        ("num_heads", heads, "num_attention_heads"),
        ("num_kv_heads", heads if latent else made.num_key_value_heads, "num_key_value_heads"),
        (
            "head_dim",
            width or made.hidden_size // heads,
            "qk_nope_head_dim + qk_rope_head_dim" if latent else "head_dim",
        ),
        ("v_head_dim", made.v_head_dim if latent else None, "v_head_dim"),
        ("intermediate_size", made.intermediate_size if dense else made.moe_intermediate_size, "intermediate_size"),
        ("vocab_size", made.vocab_size, "vocab_size"),
        ("draft_vocab_size", made.vocab_size, "vocab_size"),
        ("hidden_act", made.hidden_act, "hidden_act"),
        ("rms_norm_eps", made.rms_norm_eps, "rms_norm_eps"),
        ("norm_offset", norm_offset(board.get("layer_config")), f"the norms of {made.model_type}"),
    ):
        board.put(switch, value, source, detail)
    for name in ("lm_head.weight", "embed_tokens.weight"):
        size = board.get("vocab_size")
        if board.has(name) and board.shape(name)[0] != size and not cut(board, name, size):
            raise CheckpointError(
                f"{name} has {board.shape(name)[0]} rows, but the config says vocab_size = {board.get('vocab_size')}"
            )


def _resolve_chain(board: Switchboard, traits: Traits) -> None:
    board.put("residual", "raw", "default", "MTP")
    board.put("state_norm", True, "weights", "hnorm")
    board.put("final_norm", True, "weights", "norm.weight")
    board.put("carry", traits.carry, "default", traits.carry_detail)
    board.put("mask_first_embed", traits.mask_first_embed, "default", traits.mask_detail)
    board.put("draft_kv", "kept", "default", f"{ENGINE}: later steps see the rows before")
    board.put("sliding_window", None, "default", "full attention")
    board.put("vocab_map", "none", "default", "the target's vocabulary")
    eagle3.resolve_head(board)
    eagle3.resolve_embedding(board)


def target_json(config: DrafterConfig) -> dict[str, Any]:
    """The target's config.json keys that a head's switches are read from.

    Raises:
        CheckpointError: no MTP head.
    """
    if config.layer_form != "mtp" or config.layer_config is None:
        raise CheckpointError(f"the MTP layouts hold no drafter of layer_form {config.layer_form}")
    rope = {"rope_theta": config.rope.theta, **(config.rope.scaling or {"rope_type": "default"})}
    if config.rope.partial != 1.0:
        rope["partial_rotary_factor"] = config.rope.partial
    return dict(config.layer_config) | {
        "rope_parameters": rope,
        "max_position_embeddings": config.rope.max_position,
        "rms_norm_eps": config.rms_norm_eps,
        "hidden_act": config.hidden_act,
    }
