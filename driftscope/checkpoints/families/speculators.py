"""The speculators format of EAGLE-3 and P-EAGLE: switches at the top, layers in `transformer_layer_config`, ids as boundaries."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from driftscope.checkpoints.config import DrafterConfig
from driftscope.checkpoints.families import eagle3, safeailab
from driftscope.checkpoints.reading.board import Switchboard

NAME = "speculators"

# The nested config is saved as a difference to its class, so absent keys mean the class's values, not "unknown".
CLASS_DEFAULTS: dict[str, dict[str, int]] = {
    "llama": {"num_attention_heads": 32, "vocab_size": 32000, "max_position_embeddings": 2048},
    "qwen3": {"head_dim": 128, "num_attention_heads": 32, "vocab_size": 151936, "max_position_embeddings": 32768},
}
CLASS_THETA = 10000.0
_ARCHITECTURES = ("Eagle3Speculator", "Eagle3DraftModel")


def recognise(bare: Collection[str], raw: Mapping[str, Any]) -> str | None:
    if (kind := raw.get("speculators_model_type")) in ("eagle3", "peagle"):
        return f"speculators_model_type is {kind}"
    named = next((name for name in raw.get("architectures") or () if name in _ARCHITECTURES), None)
    return f"architecture {named}" if named and "transformer_layer_config" in raw else None


def flatten(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The nested layer config at the top, under the switches that stand there."""
    nested = raw.get("transformer_layer_config")
    nested = dict(nested) if isinstance(nested, Mapping) else {}
    outer = {key: value for key, value in raw.items() if value is not None}
    return outer | nested | {key: value for key, value in outer.items() if key not in ("model_type", "architectures")}


rename = safeailab.rename


def resolve(board: Switchboard) -> None:
    kind = str(board.raw.get("model_type", "qwen3"))
    defaults = CLASS_DEFAULTS.get(kind, {})
    traits = eagle3.Traits(
        carry_keys=("norm_output",),
        carry_default_known=True,
        heads_default=defaults,
        vocab_default=defaults.get("vocab_size"),
        theta_default=(CLASS_THETA, f"{kind} config class") if defaults else None,
        max_position_default=defaults.get("max_position_embeddings"),
    )
    eagle3.resolve(board, traits)
    told = board.flag("norm_before_residual") is not None or board.user("residual") is not None
    if not told and board.get("carry") != "none":
        board.warnings.append(
            "norm_before_residual is not in the config: false is assumed, the format's own default; vLLM assumes"
            " true (--set residual=normed)"
        )


def stored_name(canonical: str) -> str:
    return canonical


def config_json(config: DrafterConfig) -> dict[str, Any]:
    eagle3.require(config, NAME)
    layer = eagle3.llama_json(config)
    layer["model_type"] = "qwen3" if config.qk_norm else "llama"
    top = {key: layer.pop(key) for key in ("fc_norm", "norm_before_fc", "norm_output", "norm_before_residual")}
    top["draft_vocab_size"] = layer.pop("draft_vocab_size")
    top["target_hidden_size"] = layer.pop("target_hidden_size", None)
    layer.pop("num_aux_hidden_states", None)
    kind, name = ("eagle3", "Eagle3DraftModel") if config.carries else ("peagle", "PEagleDraftModel")
    if not config.carries:
        top["mask_token_id"] = layer.pop("mask_token_id")
    return {
        "architectures": [name],
        "speculators_model_type": kind,
        "eagle_aux_hidden_state_layer_ids": list(config.aux_boundaries) if config.aux_boundaries else None,
        "transformer_layer_config": layer,
        "tie_word_embeddings": False,
        **top,
    }
