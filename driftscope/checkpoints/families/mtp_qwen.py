"""MTP heads under `mtp.`: Qwen3-Next, Qwen3.5 dense and MoE, and models that took over their names."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from driftscope.checkpoints.config import DrafterConfig
from driftscope.checkpoints.families import mtp
from driftscope.checkpoints.reading.board import Switchboard

NAME = "qwen-mtp"
_OWN = {
    "pre_fc_norm_embedding.weight": "enorm.weight",
    "pre_fc_norm_hidden.weight": "hnorm.weight",
    "fc.weight": "fc.weight",
    "norm.weight": "norm.weight",
    "embed_tokens.weight": "embed_tokens.weight",
    "lm_head.weight": "lm_head.weight",
}
_TRAITS = mtp.Traits(
    carry_detail=f"{mtp.ENGINE} and SGLang feed back the output of mtp.norm",
    mask_detail=f"{mtp.ENGINE} keeps the embedding of position 0",
)


def recognise(bare: Collection[str], raw: Mapping[str, Any]) -> str | None:
    held = any(name.startswith("mtp.pre_fc_norm_") for name in bare)
    return "tensors under mtp., norms before fc" if held else None


flatten = mtp.text_part


def rename(bare: str) -> str | None:
    rest = bare.removeprefix("mtp.")
    return _OWN.get(rest) or (mtp.block_name(rest.removeprefix("layers.0.")) if rest.startswith("layers.0.") else None)


def resolve(board: Switchboard) -> None:
    mtp.resolve(board, _TRAITS)


def stored_name(canonical: str) -> str:
    own = {ours: theirs for theirs, ours in _OWN.items()}
    return f"mtp.{own.get(canonical, canonical)}"


def config_json(config: DrafterConfig) -> dict[str, Any]:
    return mtp.target_json(config) | {"mtp_num_hidden_layers": 1}
