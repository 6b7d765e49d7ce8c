"""EAGLE-1, EAGLE-2 and HASS: fc over [embedding, last hidden state], no norm before attention, none before the head."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from driftscope.checkpoints import sizes
from driftscope.checkpoints.config import DrafterConfig
from driftscope.checkpoints.families import eagle3
from driftscope.checkpoints.reading import names
from driftscope.checkpoints.reading.board import Switchboard
from driftscope.errors import CheckpointError

NAME = "eagle1"
VOCAB_MAP = "index"


def recognise(bare: Collection[str], raw: Mapping[str, Any]) -> str | None:
    if raw.get("speculators_model_type") == "eagle":
        return "speculators_model_type is eagle"
    known = {name: names.canonical(name) for name in bare}
    held = set(known.values())
    layer = "layers.0.self_attn.q_proj.weight" in held and "fc.weight" in held
    if not layer or "layers.0.hidden_norm.weight" in held or any(name.startswith("midlayer.") for name in bare):
        return None
    if "layers.0.input_layernorm.weight" not in held:
        return "fc and a layer without input_layernorm and hidden_norm"
    wrapped = raw.get("model_type") == "eagle" or any(
        str(name).startswith("Eagle") and "3" not in str(name) for name in raw.get("architectures") or ()
    )
    return "fc, no hidden_norm, and a config that says EAGLE" if wrapped else None


def flatten(raw: Mapping[str, Any]) -> dict[str, Any]:
    """vLLM's old export keeps the layer's config under `model`, speculators' under `transformer_layer_config`."""
    nested = raw.get("model") if isinstance(raw.get("model"), Mapping) else raw.get("transformer_layer_config")
    if not isinstance(nested, Mapping):
        return dict(raw)
    outer = {
        key: value
        for key, value in raw.items()
        if key not in ("model_type", "architectures", "model") and value is not None
    }
    return dict(nested) | outer


def rename(bare: str) -> str | None:
    return "d2t" if bare == "token_map" else names.canonical(bare)


def resolve(board: Switchboard) -> None:
    board.put("layer_form", "eagle1", "weights", "no hidden_norm")
    board.put("feature_source", "final", "default", "EAGLE-1")
    board.put("final_feature_normed", True, "default", "EAGLE-1")
    board.put("num_aux", 1, "default", "EAGLE-1")
    board.put("fc", True, "weights", "fc.weight")
    board.put("embed_first", True, "default", "EAGLE-1")
    sizes.resolve_widths(board)
    hidden = board.get("hidden_size")
    if (reads := board.shape("layers.0.self_attn.q_proj.weight")[1]) != hidden:
        raise CheckpointError(f"q_proj of layer 0 reads {reads} features, expected the drafter's width {hidden}")
    sizes.resolve_heads(board)
    sizes.resolve_biases(board)
    _resolve_fc(board, hidden)
    board.put("carry", "pre", "default", "EAGLE-1")
    board.put("residual", "raw", "default", "EAGLE-1")
    board.put("state_norm", False, "default", "EAGLE-1")
    board.put("final_norm", False, "default", "EAGLE-1")
    for name in ("norm.weight", "layers.0.input_layernorm.weight"):
        if board.has(name):
            board.warnings.append(f"{name} is stored, but EAGLE-1 has no such norm: it is never applied")
    eagle3.resolve_later_norm(board)
    eagle3.resolve_common(board, eagle3.Traits())
    if board.has("d2t") and board.user("vocab_map") is None:
        board.put("vocab_map", "index", "weights", "token_map")


def _resolve_fc(board: Switchboard, hidden: int) -> None:
    rows, width = board.shape("fc.weight")
    if rows != hidden or width <= hidden:
        raise CheckpointError(f"fc.weight is {rows} x {width}, expected {hidden} x {2 * hidden}: embedding and state")
    stated = board.number("target_hidden_size")
    if stated and stated[0] != width - hidden:
        raise CheckpointError(f"fc.weight reads {width - hidden} features, but config has {stated[1]} = {stated[0]}")
    board.put("target_hidden_size", width - hidden, "weights", "columns of fc.weight less hidden_size")
    if width != 2 * hidden:
        raise CheckpointError(f"fc.weight reads {width} features, expected {2 * hidden}: the state is its own input")
    board.put("fc_bias", board.has("fc.bias"), "weights", "fc.bias" if board.has("fc.bias") else "no fc.bias")
    bias = board.flag("bias", "eagle_fc_bias", "fusion_bias")
    if bias and bias[0] and not board.has("fc.bias"):
        board.problems.append(f"fc.bias is missing, but {bias[1]} is true in the config")


def stored_name(canonical: str) -> str:
    return canonical


def config_json(config: DrafterConfig) -> dict[str, Any]:
    if config.layer_form != "eagle1":
        raise CheckpointError(f"the eagle1 layout holds no drafter of layer_form {config.layer_form}")
    written = eagle3.llama_json(config)
    for key in ("fc_norm", "norm_before_fc", "norm_output", "norm_before_residual", "num_aux_hidden_states"):
        written.pop(key, None)
    if config.draft_vocab_size == config.vocab_size:
        written.pop("draft_vocab_size")
    return written | {"architectures": ["LlamaForCausalLM"], "bias": config.fc_bias, "qkv_bias": config.attention_bias}
