"""MTP heads with DeepSeek-V3's names, `layers.{n}.{enorm,hnorm,eh_proj,shared_head}`: DeepSeek-V3, R1 and V3.2,
GLM-4.5, 4.6 and 5, and the exports of such heads alone (NextN)."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Mapping
from typing import Any

from driftscope.checkpoints.config import DrafterConfig
from driftscope.checkpoints.families import mtp
from driftscope.checkpoints.reading.board import Switchboard

NAME = "deepseek-mtp"
_PLACE = re.compile(r"^(?:layers\.\d+|decoder)\.")
# At the top only the projection's name is an MTP head's alone.
_MARK = re.compile(r"^(?:layers\.\d+|decoder)\.(?:eh_proj|hnorm|shared_head\.norm)\.weight$|^eh_proj\.weight$")
_OWN = {
    "enorm.weight": "enorm.weight",
    "hnorm.weight": "hnorm.weight",
    "eh_proj.weight": "fc.weight",
    "shared_head.norm.weight": "norm.weight",
    "shared_head.head.weight": "lm_head.weight",
    "embed_tokens.weight": "embed_tokens.weight",
    "lm_head.weight": "lm_head.weight",
}
_TRAITS = mtp.Traits(
    carry_detail=f"{mtp.ENGINE} (since PR 45895) and SGLang feed back the output of shared_head.norm",
    mask_first_embed=True,
    mask_detail=f"{mtp.ENGINE} zeroes the embedding of position 0; SGLang and transformers do not",
)
_PRE_NORM = ("glm4_moe", "glm4_moe_lite")


def recognise(bare: Collection[str], raw: Mapping[str, Any]) -> str | None:
    name = next((name for name in bare if _MARK.match(name)), None)
    return f"{name}, which only an MTP head has" if name else None


flatten = mtp.text_part


def rename(bare: str) -> str | None:
    rest = _PLACE.sub("", bare)
    return _OWN.get(rest) or mtp.block_name(rest)


def resolve(board: Switchboard) -> None:
    traits = _TRAITS
    if mtp.model_type(board) in _PRE_NORM:
        detail = f"{mtp.ENGINE} feeds back the state before shared_head.norm; SGLang the one after it"
        traits = dataclasses.replace(traits, carry="pre", carry_detail=detail)
    mtp.resolve(board, traits)


def stored_name(canonical: str) -> str:
    """As in an export of the head alone, where it is layer 0."""
    rest = canonical.removeprefix("layers.0.")
    own = {ours: theirs for theirs, ours in reversed(_OWN.items())}
    return f"model.layers.0.{own.get(rest, rest)}"


def config_json(config: DrafterConfig) -> dict[str, Any]:
    return mtp.target_json(config) | {"num_nextn_predict_layers": 1}
