"""How vLLM, SGLang and TensorRT-LLM would read the same checkpoint, where they differ from what is run here.

Facts as of vLLM 0.32, SGLang 0.5.23 and TensorRT-LLM's speculative modules of 2026; each engine reads only the keys it
knows, and an unknown key is skipped without a word."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from driftscope.checkpoints.config import DrafterConfig
from driftscope.checkpoints.reading.aux_ids import default_boundaries, spelled

_IDS = "eagle_aux_hidden_state_layer_ids"


@dataclass(frozen=True)
class EngineReading:
    """One switch and what each engine makes of it. None where an engine reads it as it is run here."""

    switch: str
    here: str
    vllm: str | None
    sglang: str | None
    tensorrt_llm: str | None
    why: str

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def engine_readings(
    config: DrafterConfig, raw: Mapping[str, Any], stored: Mapping[str, Any], target_layers: int | None = None
) -> list[EngineReading]:
    """The switches that at least one engine reads otherwise.

    Args:
        raw: the config as it stands in the file.
        stored: canonical names of the stored tensors.
        target_layers: n, where it is known; else defaults are spelled with n.
    """
    if config.layer_form == "mtp":
        return _mtp(config)
    if config.in_blocks:
        return []
    nested = raw.get("eagle_config")
    nested = nested if isinstance(nested, Mapping) else {}
    rows = [
        _boundaries(config, raw, nested, target_layers),
        _residual(config, raw),
        _carry(config, raw, nested),
        _input_norm(config, raw, nested),
        _fc_norm(config, raw),
        _later_norm(config),
        _fc_bias(config, raw),
        _attention_bias(config, raw),
        _output_bias(config, raw),
        _embedding(config),
        _head(config, raw, stored),
        _vocab_map(config),
    ]
    return [row for row in rows if row is not None]


# Model of an MTP head's layer -> (carry of vLLM, of SGLang, whether vLLM masks the first embedding, whether SGLang does).
_MTP = {
    "deepseek_v3": ("post", "post", "yes", "no"),
    "glm4_moe": ("pre", "post", "yes", "no"),
    "glm4_moe_lite": ("pre", "post", "yes", "no"),
    "qwen2": ("post", "post", "yes", "yes"),
}
_UNSEEN = "not looked into"


def _mtp(config: DrafterConfig) -> list[EngineReading]:
    """The carry always, since nothing is known of TensorRT-LLM; the rest where it differs."""
    kind = (config.layer_config or {}).get("model_type", "")
    carry, carry_sglang, mask, mask_sglang = _MTP.get(kind, ("post", "post", "no", "no"))
    masked = _yes(config.mask_first_embed)
    rows = [
        _row(
            "carry",
            config.carry,
            carry,
            carry_sglang,
            _UNSEEN,
            "no config says it: each engine's code for the model does",
        ),
        None
        if mask == mask_sglang == masked
        else _row(
            "mask_first_embed",
            masked,
            mask,
            mask_sglang,
            _UNSEEN,
            "no config says it; the row of position 0 is the sink's",
        ),
    ]
    return [row for row in rows if row is not None]


def _row(switch: str, here: str, vllm: str, sglang: str, tensorrt_llm: str, why: str) -> EngineReading | None:
    first, second, third = (None if value == here else value for value in (vllm, sglang, tensorrt_llm))
    differs = first is not None or second is not None or third is not None
    return EngineReading(switch, here, first, second, third, why) if differs else None


def _boundaries(
    config: DrafterConfig, raw: Mapping[str, Any], nested: Mapping[str, Any], layers: int | None
) -> EngineReading | None:
    if config.feature_source != "aux":
        return None
    default = spelled(default_boundaries(layers) if layers else None)
    here = spelled(config.aux_boundaries) if config.aux_boundaries is not None else default
    top_ids, nested_ids = _ids(raw.get(_IDS)), _ids(nested.get(_IDS))
    if top_ids:
        vllm = spelled(top_ids)
    elif nested_ids and spelled(nested_ids) != default:
        vllm = f"{spelled(nested_ids)} (V1 runner) or {default} (V2 runner)"
    else:
        vllm = default
    return _row(
        "aux_boundaries",
        here,
        vllm,
        spelled([i + 1 for i in nested_ids]) if nested_ids else default,
        default,
        f"vLLM takes {_IDS} as boundaries, its V2 runner only at the top; SGLang only in eagle_config, as layer"
        " outputs; TensorRT-LLM takes eagle3_layers_to_capture of its own settings, else the default",
    )


def _ids(value: Any) -> list[int]:
    return sorted(value) if isinstance(value, list) and all(isinstance(i, int) for i in value) else []


def _residual(config: DrafterConfig, raw: Mapping[str, Any]) -> EngineReading | None:
    vllm = config.residual
    if "norm_before_residual" not in raw and raw.get("speculators_model_type") == "eagle3":
        vllm = "normed"
    why = "SGLang and TensorRT-LLM know no norm_before_residual; vLLM takes true where the speculators format omits it"
    return _row("residual", config.residual, vllm, "raw", "raw", why) if config.layer_form == "eagle3" else None


def _carry(config: DrafterConfig, raw: Mapping[str, Any], nested: Mapping[str, Any]) -> EngineReading | None:
    if config.layer_form != "eagle3" or not config.carries:
        return None
    top = "post" if raw.get("norm_output") is True else "pre"
    tensorrt = "post" if nested.get("return_hidden_post_norm") is True else top
    why = "norm_output is read at the top only; TensorRT-LLM also takes eagle_config.return_hidden_post_norm"
    return _row("carry", config.carry, top, top, tensorrt, why)


def _input_norm(config: DrafterConfig, raw: Mapping[str, Any], nested: Mapping[str, Any]) -> EngineReading | None:
    inner, top = nested.get("norm_before_fc"), raw.get("norm_before_fc")
    either = bool(inner if inner is not None else top)
    tensorrt = bool(inner) and raw.get("fc_norm") is not True
    why = (
        "norm_before_fc: vLLM and SGLang look in eagle_config, then at the top; TensorRT-LLM only in eagle_config, and"
        " not beside fc_norm"
    )
    on = _yes(config.input_norm)
    return _row("input_norm", on, _yes(either), _yes(either), _yes(tensorrt), why)


def _fc_norm(config: DrafterConfig, raw: Mapping[str, Any]) -> EngineReading | None:
    top = raw.get("fc_norm") is True
    sglang = top or raw.get("use_aux_norm") is True
    why = "fc_norm is read at the top only, whatever tensors are stored; SGLang also takes use_aux_norm"
    return _row("fc_norm", _yes(config.fc_norm), _yes(top), _yes(sglang), _yes(top), why)


def _later_norm(config: DrafterConfig) -> EngineReading | None:
    if config.num_layers == 1 or config.layer_form != "eagle3":
        return None
    why = "norm before attention in layers after the first, by the name each engine loads; the other one stays at ones"
    return _row("later_layer_norm", config.later_layer_norm, "input_layernorm", "hidden_norm", "hidden_norm", why)


def _fc_bias(config: DrafterConfig, raw: Mapping[str, Any]) -> EngineReading | None:
    if not config.fc:
        return None
    sglang = raw.get("bias") is True
    vllm = config.fc_bias if config.layer_form == "eagle3" else False
    why = "SGLang has a bias in fc only where config has bias true; vLLM never has one for EAGLE-1"
    return _row("fc_bias", _yes(config.fc_bias), _yes(vllm), _yes(sglang), _yes(config.fc_bias), why)


def _attention_bias(config: DrafterConfig, raw: Mapping[str, Any]) -> EngineReading | None:
    stated = raw.get("attention_bias") is True
    on = _yes(config.attention_bias)
    why = "vLLM obeys attention_bias of the config, not the tensors; SGLang's EAGLE-3 layer has none"
    sglang = "no" if config.layer_form == "eagle3" else on
    vllm = _yes(stated) if config.layer_form == "eagle3" else on
    nested = raw.get("transformer_layer_config")
    if isinstance(nested, Mapping):
        vllm = _yes(nested.get("attention_bias") is True)
    return _row("attention_bias", on, vllm, sglang, on, why)


def _output_bias(config: DrafterConfig, raw: Mapping[str, Any]) -> EngineReading | None:
    """Of the Llama layers, which most drafters are."""
    if config.qk_norm or config.kv_lora_rank is not None:
        return None
    nested = raw.get("transformer_layer_config")
    held = nested if isinstance(nested, Mapping) else raw
    vllm, on = _yes(held.get("attention_bias") is True or held.get("bias") is True), _yes(config.output_bias)
    why = "vLLM gives o_proj a bias where the config says attention_bias or bias; one not stored stays uninitialised there"
    return _row("output_bias", on, vllm, on, on, why)


def _embedding(config: DrafterConfig) -> EngineReading | None:
    if config.embedding != "own":
        return None
    same = config.hidden_size == config.target_hidden_size
    why = "a stored embedding is dropped for the target's by SGLang and TensorRT-LLM where the widths agree"
    other = "target" if same else "own"
    return _row("embedding", "own", "own", other, other, why)


def _head(config: DrafterConfig, raw: Mapping[str, Any], stored: Mapping[str, Any]) -> EngineReading | None:
    if config.head != "own" or config.layer_form != "eagle3":
        return None
    nested = raw.get("transformer_layer_config")
    size = raw.get("draft_vocab_size", nested.get("draft_vocab_size") if isinstance(nested, Mapping) else None)
    tied = raw.get("tie_word_embeddings") is True
    sglang = "embed_tokens" if tied else "own" if size is not None else "target"
    why = "SGLang uses the target's head where draft_vocab_size is null, and the embedding where they are tied"
    return _row("head", "own", "own", sglang, "own", why)


def _vocab_map(config: DrafterConfig) -> EngineReading | None:
    if config.vocab_map != "index":
        return None
    return _row("vocab_map", "index", "offset", "offset", "offset", "every engine adds d2t to the draft id")


def _yes(value: bool) -> str:
    return "yes" if value else "no"
