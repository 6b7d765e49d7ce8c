"""The target's own decoder layer, as transformers has it, for heads whose block is one (MTP)."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import torch
from torch import nn

from driftscope.checkpoints.config import DrafterConfig
from driftscope.errors import CheckpointError

# What a config class holds beside what its layers are made of. Rope and position limit are switches of the drafter.
_NOT_THE_LAYERS = re.compile(
    r"^(.*_token_id|use_cache|num_hidden_layers|layer_types|mlp_layer_types|tie_word_embeddings|rope_parameters"
    r"|max_position_embeddings|initializer_range|mtp_.*|num_mtp_layers|output_router_logits|rms_norm_eps|hidden_act)$"
)
# Models whose layer is that of another one; of a sparse attention (DSA), the dense layer below it.
_SAME_LAYER = {"mimo": "qwen2", "glm_moe_dsa": "deepseek_v3", "deepseek_v32": "deepseek_v3"}
_PARTS = ("self_attn", "mlp", "post_attention_layernorm")


def class_config(raw: Mapping[str, Any]) -> Any:
    """A target's config as its transformers class completes it; of a model without one, as the class of its layer does.

    Raises:
        CheckpointError: transformers has no such model, or does not accept the config.
    """
    from transformers import CONFIG_MAPPING

    said = str(raw.get("model_type"))
    kind = said if said in CONFIG_MAPPING else _SAME_LAYER.get(said, said)
    if kind not in CONFIG_MAPPING:
        raise CheckpointError(
            f"config: model_type {raw.get('model_type')!r} is none whose decoder layer transformers has; a newer"
            " transformers may"
        )
    return _accepted(kind, {k: v for k, v in raw.items() if k not in ("quantization_config", "auto_map")})


def layer_config(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a target's config that its decoder layers follow from: `model_type` and what it says of them.

    A layer with a sparse attention indexer (DeepSeek-V3.2, GLM-5) becomes the dense layer below it: rows see all keys,
    which is the same up to `index_topk` rows. Raises CheckpointError as `class_config` does.
    """
    from transformers import CONFIG_MAPPING, PreTrainedConfig

    own = class_config(raw)
    kind = _SAME_LAYER.get(own.model_type, own.model_type)
    base = {item.name for item in dataclasses.fields(PreTrainedConfig)}
    held, default = own.to_dict(), CONFIG_MAPPING[kind]().to_dict()
    # Layers read head_dim also where the class does not name it.
    fields = {item.name for item in dataclasses.fields(CONFIG_MAPPING[kind])} - base | {"head_dim"}
    named = sorted(name for name in fields if not _NOT_THE_LAYERS.match(name))
    differs = {name: held[name] for name in named if held.get(name) is not None and held[name] != default.get(name)}
    return json.loads(json.dumps({"model_type": kind, **differs}))


def transformers_config(config: DrafterConfig) -> Any:
    """The transformers config of a head's block: one layer, of full attention, with experts if the target has any.
    Rope, eps and activation are those of the drafter's switches.

    Raises:
        CheckpointError: transformers does not accept it.
    """
    held = dict(config.layer_config or {})
    kind = held.pop("model_type")
    rope = {"rope_theta": config.rope.theta, "partial_rotary_factor": config.rope.partial}
    rope |= dict(config.rope.scaling or {"rope_type": "default"})
    held |= {"rope_parameters": rope, "max_position_embeddings": config.rope.max_position, "num_hidden_layers": 1}
    made = _accepted(kind, held | {"rms_norm_eps": config.rms_norm_eps, "hidden_act": config.hidden_act})
    # The head restarts the count of layers, and its block is of the kind that most layers of the target are.
    for name, value in (
        ("layer_types", ["full_attention"]), ("mlp_layer_types", ["sparse"]), ("first_k_dense_replace", 0),
        ("mlp_only_layers", []), ("decoder_sparse_step", 1), ("rope_interleave", config.rope.layout == "interleaved"),
    ):  # fmt: skip
        if getattr(made, name, None) is not None:
            setattr(made, name, value)
    made._attn_implementation = "eager"
    made._experts_implementation = "eager"
    return made


def _accepted(kind: str, held: Mapping[str, Any]) -> Any:
    from transformers import CONFIG_MAPPING

    try:
        return CONFIG_MAPPING[kind](**{name: value for name, value in held.items() if name != "model_type"})
    except Exception as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise CheckpointError(f"transformers does not take this config of a {kind} layer: {first}") from error


def decoder_layer(config: DrafterConfig) -> tuple[Any, nn.Module, tuple[str, ...]]:
    """(layer 0, rotary embedding, patterns of the tensors that stay in float32), on the current default device.

    Raises:
        CheckpointError: a layer of other parts than the sites of a drafter stand for.
    """
    from transformers import AutoModel

    model = AutoModel.from_config(transformers_config(config))
    kind = model.config.model_type
    layer, rotary = model.layers[0], model.rotary_emb
    absent = [name for name in _PARTS if not hasattr(layer, name)]
    if absent or not hasattr(layer.self_attn, "scaling"):
        raise CheckpointError(f"the decoder layer of {kind} has no {absent[0] if absent else 'self_attn.scaling'}")
    kept = {*(model._keep_in_fp32_modules_strict or ()), *(model._keep_in_fp32_modules or ())}
    return layer, rotary, tuple(sorted(kept))


def layer_shapes(layer_config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Tensor name -> shape of the target's decoder layer."""
    return dict(_facts(json.dumps(layer_config, sort_keys=True))[0])


def norm_offset(layer_config: Mapping[str, Any]) -> float:
    """1.0 where the layer's norms multiply by (1 + w): such weights start at zero."""
    return _facts(json.dumps(layer_config, sort_keys=True))[1]


@lru_cache(maxsize=16)
def _facts(held: str) -> tuple[tuple[tuple[str, tuple[int, ...]], ...], float]:
    bare = DrafterConfig(1, 1, 1, 1, 1, 1, 1, 1, layer_config=json.loads(held))
    with torch.device("meta"):
        layer, _, _ = decoder_layer(bare)
    norm: Any = type(layer.post_attention_layernorm)(2)
    shapes = tuple((name, tuple(tensor.shape)) for name, tensor in layer.state_dict().items())
    return shapes, 0.0 if bool(norm.weight.any()) else 1.0
