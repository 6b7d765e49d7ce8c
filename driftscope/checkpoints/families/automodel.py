"""The EAGLE-3 layout of NeMo Automodel: everything but head and vocabulary map under `model.`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from driftscope.checkpoints.config import DrafterConfig
from driftscope.checkpoints.families import eagle3, safeailab
from driftscope.checkpoints.reading.board import Switchboard

NAME = "automodel"

_ARCHITECTURES = ("LlamaEagle3DraftModel", "Eagle3DraftModel")


def recognise(bare: Collection[str], raw: Mapping[str, Any]) -> str | None:
    named = next((name for name in raw.get("architectures") or () if name in _ARCHITECTURES), None)
    return f"architecture {named}" if named else None


flatten = safeailab.flatten
rename = safeailab.rename


def resolve(board: Switchboard) -> None:
    eagle3.resolve(board)


def stored_name(canonical: str) -> str:
    return canonical if canonical.startswith(("lm_head.", "d2t", "t2d")) else f"model.{canonical}"


def config_json(config: DrafterConfig) -> dict[str, Any]:
    written = eagle3.llama_json(config) | {"architectures": ["LlamaEagle3DraftModel"]}
    if config.aux_boundaries is not None:
        written["eagle_config"] = {"eagle_aux_hidden_state_layer_ids": eagle3.layer_outputs(config)}
    return written
