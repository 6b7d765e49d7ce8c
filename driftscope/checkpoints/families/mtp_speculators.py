"""MTP heads in the speculators format: `mtp_layers.0.`, the target's layer config in `transformer_layer_config`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from driftscope.checkpoints.config import DrafterConfig
from driftscope.checkpoints.families import mtp, mtp_mimo, speculators
from driftscope.checkpoints.reading.board import Switchboard

NAME = "speculators-mtp"
_TRAITS = mtp.Traits(
    carry_detail=f"{mtp.ENGINE} and the trainer feed back the output of final_layernorm",
    mask_detail=f"{mtp.ENGINE} keeps the embedding of position 0",
)


def recognise(bare: Collection[str], raw: Mapping[str, Any]) -> str | None:
    if raw.get("speculators_model_type") == "mtp":
        return "speculators_model_type is mtp"
    named = "MTPDraftModel" in (raw.get("architectures") or ()) and "transformer_layer_config" in raw
    return "architecture MTPDraftModel" if named else None


def flatten(raw: Mapping[str, Any]) -> dict[str, Any]:
    nested = raw.get("transformer_layer_config")
    kind = nested.get("model_type") if isinstance(nested, Mapping) else None
    return {key: value for key, value in speculators.flatten(raw).items() if key != "model_type"} | (
        {"model_type": kind} if kind else {}
    )


rename = mtp_mimo.rename


def resolve(board: Switchboard) -> None:
    mtp.resolve(board, _TRAITS)
    board.warnings.append(
        "the trainer lets a step see only the keys of its own step, engines also those of the steps before; it runs as"
        " engines do"
    )


def stored_name(canonical: str) -> str:
    return mtp_mimo.stored_name(canonical).removeprefix("model.")


def config_json(config: DrafterConfig) -> dict[str, Any]:
    return {
        "architectures": ["MTPDraftModel"],
        "speculators_model_type": "mtp",
        "num_nextn_predict_layers": 1,
        "transformer_layer_config": mtp.target_json(config),
    }
