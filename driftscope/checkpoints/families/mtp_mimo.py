"""MTP heads under `mtp_layers.0.`: MiMo-7B, whose projection reads the hidden state first."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from driftscope.checkpoints.config import DrafterConfig
from driftscope.checkpoints.families import mtp
from driftscope.checkpoints.reading.board import Switchboard

NAME = "mimo-mtp"
_PREFIX = "mtp_layers.0."
_OWN = {
    "token_layernorm.weight": "enorm.weight",
    "hidden_layernorm.weight": "hnorm.weight",
    "input_proj.weight": "fc.weight",
    "final_layernorm.weight": "norm.weight",
}
_TRAITS = mtp.Traits(
    carry_detail=f"{mtp.ENGINE} feeds back the output of final_layernorm, for one step only",
    mask_first_embed=True,
    mask_detail=f"{mtp.ENGINE} and SGLang zero the embedding of position 0",
    embed_first=False,
)


def recognise(bare: Collection[str], raw: Mapping[str, Any]) -> str | None:
    held = any(f"{_PREFIX}{kind}_layernorm.weight" in bare for kind in ("token", "hidden"))
    return "tensors under mtp_layers.0., norms for token and hidden state" if held else None


def flatten(raw: Mapping[str, Any]) -> dict[str, Any]:
    return dict(raw)


def rename(bare: str) -> str | None:
    if not bare.startswith(_PREFIX):
        return bare if bare in ("embed_tokens.weight", "lm_head.weight") else None
    rest = bare.removeprefix(_PREFIX)
    return _OWN.get(rest) or mtp.block_name(rest)


def resolve(board: Switchboard) -> None:
    mtp.resolve(board, _TRAITS)


def stored_name(canonical: str) -> str:
    own = {ours: _PREFIX + theirs for theirs, ours in _OWN.items()}
    rest = canonical.removeprefix("layers.0.")
    name = own.get(canonical) or (canonical if rest == canonical else _PREFIX + rest)
    return f"model.{name}"


def config_json(config: DrafterConfig) -> dict[str, Any]:
    return mtp.target_json(config) | {"architectures": ["MiMoForCausalLM"], "num_nextn_predict_layers": 1}
