"""The families in the order in which they are asked: the first that recognises a checkpoint reads it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Protocol, cast

from driftscope.checkpoints.config import DrafterConfig
from driftscope.checkpoints.families import (
    angelslim,
    automodel,
    dflash,
    eagle1,
    griffin,
    modelopt,
    mtp_deepseek,
    mtp_mimo,
    mtp_qwen,
    mtp_speculators,
    safeailab,
    specforge,
    speculators,
    speculators_dflash,
    torchspec,
    vllm,
)
from driftscope.checkpoints.reading.board import Switchboard


class Family(Protocol):
    """What a family's module offers."""

    @property
    def NAME(self) -> str: ...

    def recognise(self, bare: Collection[str], raw: Mapping[str, Any], /) -> str | None:
        """Why a checkpoint with these tensor names (wrappers off) and this config is of this family, or None."""

    def flatten(self, raw: Mapping[str, Any], /) -> dict[str, Any]:
        """The config with the keys of the drafter's own layers at the top."""

    def rename(self, bare: str, /) -> str | None:
        """The canonical name of a tensor, or None where the family has no use for it."""

    def resolve(self, board: Switchboard, /) -> None:
        """Put every switch; raises CheckpointError where that cannot be done."""

    def stored_name(self, canonical: str, /) -> str:
        """How the family stores a tensor."""

    def config_json(self, config: DrafterConfig, /) -> dict[str, Any]:
        """config.json as the family writes it; raises CheckpointError for switches it cannot express."""


# The more particular first: several of them differ from the plain layouts only by a key of the config.
FAMILIES: tuple[Family, ...] = tuple(
    cast(Family, module)
    for module in (
        mtp_speculators,
        mtp_deepseek,
        mtp_qwen,
        mtp_mimo,
        speculators_dflash,
        dflash,
        speculators,
        griffin,
        eagle1,
        automodel,
        torchspec,
        modelopt,
        angelslim,
        specforge,
        safeailab,
        vllm,
    )
)
