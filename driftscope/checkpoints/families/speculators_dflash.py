"""DFlash in the speculators format: the layers in `transformer_layer_config`, ids as boundaries, own head where reduced."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from driftscope.checkpoints.config import DrafterConfig
from driftscope.checkpoints.families import dflash, eagle3, speculators
from driftscope.checkpoints.reading.board import Switchboard
from driftscope.errors import CheckpointError

NAME = "speculators-dflash"


def recognise(bare: Collection[str], raw: Mapping[str, Any]) -> str | None:
    return "speculators_model_type is dflash" if raw.get("speculators_model_type") == "dflash" else None


flatten = speculators.flatten
rename = dflash.rename
stored_name = dflash.stored_name


def resolve(board: Switchboard) -> None:
    kind = str(board.raw.get("model_type", "qwen3"))
    defaults = speculators.CLASS_DEFAULTS.get(kind, {})
    traits = eagle3.Traits(
        heads_default=defaults,
        vocab_default=defaults.get("vocab_size"),
        theta_default=(speculators.CLASS_THETA, f"{kind} config class") if defaults else None,
        max_position_default=defaults.get("max_position_embeddings"),
    )
    dflash.resolve_block(board, traits)


def config_json(config: DrafterConfig) -> dict[str, Any]:
    layer = dflash.layer_json(config)
    if config.block_causal == "all":
        raise CheckpointError(f"the {NAME} layout has no key for block_causal = all")
    top = {
        "draft_vocab_size": layer.pop("draft_vocab_size"),
        "target_hidden_size": layer.pop("target_hidden_size", None),
    }
    return {
        "architectures": ["DFlashDraftModel"],
        "speculators_model_type": "dflash",
        "transformer_layer_config": layer,
        "aux_hidden_state_layer_ids": list(config.aux_boundaries) if config.aux_boundaries else None,
        "block_size": config.block_size,
        "mask_token_id": config.mask_token_id,
        "sample_from_anchor": config.sample_from_anchor,
        "sliding_window_non_causal": config.block_causal == "none",
        **top,
    }
