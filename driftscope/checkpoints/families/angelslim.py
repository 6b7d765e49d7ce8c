"""The EAGLE-3 layout of AngelSlim: `midlayer.` with `Eagle3LlamaForCausalLM` and `aux_hidden_states_layer_ids`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from driftscope.checkpoints.config import DrafterConfig
from driftscope.checkpoints.families import eagle3, safeailab
from driftscope.checkpoints.reading.board import Switchboard

NAME = "angelslim"


def recognise(bare: Collection[str], raw: Mapping[str, Any]) -> str | None:
    if not safeailab.recognise(bare, raw):
        return None
    for key in ("aux_hidden_states_layer_ids", "modal_type", "target_model_type"):
        if key in raw:
            return f"tensors under midlayer., {key} in the config"
    if "Eagle3LlamaForCausalLM" in (raw.get("architectures") or ()):
        return "tensors under midlayer., architecture Eagle3LlamaForCausalLM"
    return None


flatten = safeailab.flatten
rename = safeailab.rename
stored_name = safeailab.stored_name


def resolve(board: Switchboard) -> None:
    eagle3.resolve(board)
    theta = board.get("rope.theta")
    if theta != 10000.0 and board.user("rope.theta") is None:
        # Forcing 10000 back raised the acceptance length of a published checkpoint: wejoncy/sfllm PR 32.
        board.warnings.append(
            f"rope theta is {theta:g} in the config, but AngelSlim's trainer ran with 10000 whatever it says: compare"
            " --rope-theta 10000"
        )


def config_json(config: DrafterConfig) -> dict[str, Any]:
    eagle3.require(config, NAME, num_layers=1)
    written = eagle3.llama_json(config) | {"architectures": ["Eagle3LlamaForCausalLM"], "modal_type": "LLM"}
    if config.aux_boundaries is not None:
        written["aux_hidden_states_layer_ids"] = eagle3.layer_outputs(config)
    return written
