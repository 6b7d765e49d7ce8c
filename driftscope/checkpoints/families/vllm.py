"""EAGLE-3 as vLLM reads it: `layers.0.`, ids as boundaries at the top of the config; also SGLang's own spellings."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from driftscope.checkpoints.config import DrafterConfig
from driftscope.checkpoints.families import eagle3, safeailab
from driftscope.checkpoints.reading.board import Switchboard

NAME = "vllm"


def recognise(bare: Collection[str], raw: Mapping[str, Any]) -> str | None:
    if "layers.0.hidden_norm.weight" in bare:
        return "layers.0.hidden_norm, which only an EAGLE-3 layer has"
    nested = raw.get("eagle_config")
    no_aux = isinstance(nested, Mapping) and nested.get("use_aux_hidden_state") is False
    if no_aux and "layers.0.self_attn.q_proj.weight" in bare:
        return "use_aux_hidden_state is false in eagle_config"
    named = next((name for name in raw.get("architectures") or () if "Eagle3" in str(name)), None)
    if named and "layers.0.self_attn.q_proj.weight" in bare:
        return f"architecture {named}"
    return None


flatten = safeailab.flatten
rename = safeailab.rename


def resolve(board: Switchboard) -> None:
    eagle3.resolve(board)


def stored_name(canonical: str) -> str:
    return canonical


def config_json(config: DrafterConfig) -> dict[str, Any]:
    name = "Eagle3Qwen3ForCausalLM" if config.qk_norm else "Eagle3LlamaForCausalLM"
    name = name if config.carries else name.replace("Eagle3", "Peagle")
    written = eagle3.llama_json(config) | {"architectures": [eagle3.architecture(config, name)]}
    if config.feature_source == "final":
        written["eagle_config"] = {"use_aux_hidden_state": False}
    elif config.aux_boundaries is not None:
        written["eagle_aux_hidden_state_layer_ids"] = list(config.aux_boundaries)
    return written
