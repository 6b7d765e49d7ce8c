"""The EAGLE-3 layout of SpecForge: as SafeAILab's, with `LlamaForCausalLMEagle3` and the 3.1 switches in the config."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from driftscope.checkpoints.config import DrafterConfig
from driftscope.checkpoints.families import eagle3, safeailab
from driftscope.checkpoints.reading.board import Switchboard

NAME = "specforge"


def recognise(bare: Collection[str], raw: Mapping[str, Any]) -> str | None:
    if "LlamaForCausalLMEagle3" in (raw.get("architectures") or ()) and safeailab.recognise(bare, raw):
        return "tensors under midlayer., architecture LlamaForCausalLMEagle3"
    return None


flatten = safeailab.flatten
rename = safeailab.rename
stored_name = safeailab.stored_name


def resolve(board: Switchboard) -> None:
    eagle3.resolve(board)
    stated = board.flag("norm_output")
    seconded = board.flag("eagle_config.return_hidden_post_norm")
    if stated is None or board.user("carry") is not None or (seconded and seconded[0] == stated[0]):
        return
    # SpecForge PR 879 gave norm_output today's meaning; before, it only put the norm before the head.
    was = "--carry pre" if stated[0] else "--set final_norm=false"
    board.warnings.append(
        f"norm_output is {str(stated[0]).lower()} and read as the carry ({board.get('carry')}-norm); SpecForge before"
        f" its PR 879 meant the norm before the head by it and always carried pre-norm ({was} if trained with that)"
    )


def config_json(config: DrafterConfig) -> dict[str, Any]:
    eagle3.require(config, NAME, num_layers=1)
    written = eagle3.llama_json(config) | {"architectures": ["LlamaForCausalLMEagle3"]}
    # TensorRT-LLM's word for the carry, which leaves no doubt about norm_output.
    nested: dict[str, Any] = {"return_hidden_post_norm": config.carry == "post"}
    if config.aux_boundaries is not None:
        nested["eagle_aux_hidden_state_layer_ids"] = eagle3.layer_outputs(config)
    return written | {"eagle_config": nested}
