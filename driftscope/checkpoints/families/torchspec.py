"""The EAGLE-3 layout of TorchSpec: `midlayer.`, or `layers.0.` when exported for vLLM; ids as layer outputs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from driftscope.checkpoints.config import DrafterConfig
from driftscope.checkpoints.families import eagle3, safeailab
from driftscope.checkpoints.reading.board import Switchboard

NAME = "torchspec"


def recognise(bare: Collection[str], raw: Mapping[str, Any]) -> str | None:
    if "_torchspec_version" in raw:
        return "_torchspec_version in the config"
    nested = raw.get("eagle_config")
    if isinstance(nested, Mapping) and "use_last_layernorm" in nested and safeailab.recognise(bare, raw):
        return "tensors under midlayer., use_last_layernorm in eagle_config"
    return None


flatten = safeailab.flatten
rename = safeailab.rename
stored_name = safeailab.stored_name


def resolve(board: Switchboard) -> None:
    eagle3.resolve(board)


def config_json(config: DrafterConfig) -> dict[str, Any]:
    eagle3.require(config, NAME, num_layers=1)
    nested: dict[str, Any] = {"use_aux_hidden_state": True, "use_last_layernorm": True}
    if config.aux_boundaries is not None:
        nested["eagle_aux_hidden_state_layer_ids"] = eagle3.layer_outputs(config)
    return eagle3.llama_json(config) | {
        "architectures": [eagle3.architecture(config, "LlamaForCausalLMEagle3")],
        "num_aux_hidden_states": config.num_aux,
        "target_hidden_size": config.target_hidden_size,
        "eagle_config": nested,
    }
