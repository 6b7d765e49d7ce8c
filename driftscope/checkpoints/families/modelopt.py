"""The EAGLE-3 layout that NVIDIA ModelOpt exports: `layers.0.`, everything EAGLE-specific nested in `eagle_config`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from driftscope.checkpoints.config import DrafterConfig
from driftscope.checkpoints.families import eagle3, safeailab
from driftscope.checkpoints.reading.board import Switchboard

NAME = "modelopt"

_MARKS = (
    "use_input_layernorm_in_first_layer", "use_last_layernorm", "use_mtp_layernorm", "next_layer_regular",
    "parallel_draft_step", "parallel_draft_heads_num_layers",
)  # fmt: skip


def recognise(bare: Collection[str], raw: Mapping[str, Any]) -> str | None:
    nested = raw.get("eagle_config")
    if not isinstance(nested, Mapping) or not any(name.startswith("layers.0.") for name in bare):
        return None
    mark = next((mark for mark in _MARKS if mark in nested), None)
    return f"tensors under layers.0., {mark} in eagle_config" if mark else None


flatten = safeailab.flatten
rename = safeailab.rename


def resolve(board: Switchboard) -> None:
    last = board.flag("eagle_config.use_last_layernorm")
    eagle3.resolve(board, eagle3.Traits(norm_optional=bool(last and not last[0])))
    scaling = board.get("rope.scaling")
    if scaling and scaling.get("rope_type") == "yarn" and board.user("rope.scaling") is None:
        board.warnings.append(
            f"yarn with factor {scaling.get('factor')} may have been put in at export, after training with plain rope,"
            " as ModelOpt can: compare --set rope.scaling=null on short texts"
        )


def stored_name(canonical: str) -> str:
    return canonical


def config_json(config: DrafterConfig) -> dict[str, Any]:
    name = eagle3.architecture(config, "LlamaForCausalLMEagle3")
    written = eagle3.llama_json(config) | {"architectures": [name]}
    nested: dict[str, Any] = {
        "use_aux_hidden_state": config.feature_source == "aux",
        "use_input_layernorm_in_first_layer": True,
        "use_last_layernorm": config.final_norm,
        "use_mtp_layernorm": False,
        "next_layer_regular": True,
        "parallel_draft_step": 1,
        "norm_before_fc": written.pop("norm_before_fc"),
    }
    if config.aux_boundaries is not None and config.feature_source == "aux":
        nested["eagle_aux_hidden_state_layer_ids"] = eagle3.layer_outputs(config)
    return written | {"eagle_config": nested}
