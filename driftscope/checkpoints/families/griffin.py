"""GRIFFIN: EAGLE-1 with a second stage behind fc, and a layer that ends in 2H: one half for the head, one fed back."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from driftscope.checkpoints.config import DrafterConfig
from driftscope.checkpoints.families import eagle1
from driftscope.checkpoints.reading import names
from driftscope.checkpoints.reading.board import Switchboard
from driftscope.errors import CheckpointError

NAME = "griffin"
VOCAB_MAP = "index"
_OWN = {
    "fc.fc.weight": "fc.weight",
    "fc.fc.bias": "fc.bias",
    "fc.post_attention_layernorm.weight": "fc_mlp.outer_norm.weight",
    "fc.mlp.input_layernorm.weight": "fc_mlp.norm.weight",
    "fc.mlp.up_proj.weight": "fc_mlp.up_proj.weight",
    "fc.mlp.down_proj.weight": "fc_mlp.down_proj.weight",
}


def recognise(bare: Collection[str], raw: Mapping[str, Any]) -> str | None:
    return "fc.fc and a norm beside it" if "fc.fc.weight" in bare else None


def flatten(raw: Mapping[str, Any]) -> dict[str, Any]:
    return dict(raw)


def rename(bare: str) -> str | None:
    return _OWN.get(bare) or names.canonical(bare)


def resolve(board: Switchboard) -> None:
    eagle1.resolve(board)
    if board.get("num_layers") != 1:
        raise CheckpointError(f"{board.get('num_layers')} layers are stored, GRIFFIN has one, whose output is 2H wide")
    board.put("fc_mlp", True, "weights", "fc.mlp")
    board.put("wide_output", True, "default", "GRIFFIN")
    board.put("carry", "second", "default", "GRIFFIN")


def stored_name(canonical: str) -> str:
    return {ours: theirs for theirs, ours in _OWN.items()}.get(canonical, canonical)


def config_json(config: DrafterConfig) -> dict[str, Any]:
    return eagle1.config_json(config)
