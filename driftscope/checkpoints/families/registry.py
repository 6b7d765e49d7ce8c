"""The families in the order in which they are asked: the first that recognises a checkpoint reads it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Protocol, cast

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
from driftscope.checkpoints.reading.board import Stated, Switchboard
from driftscope.errors import DriftscopeError

if TYPE_CHECKING:
    from torch import Tensor

GROUP = "driftscope.families"


class Family(Protocol):
    """What a family's module offers. Three more names are optional:

    - `VOCAB_MAP`: "index" where its map of the draft vocabulary holds ids of the target, "offset" where it holds offsets; it is
      then not guessed, and written so from whichever a drafter has.
    - `AUX_IDS`: ((config key, convention), ...), keys of its own for the aux layers; "boundary" or "layer output".
    - `stored_value(canonical, tensor)`: the tensor as the family stores it, where values differ and not only names.
    """

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
_registered: list[Family] = []


def register(family: Family) -> None:
    """Make a family known to this process; it is asked before the shipped ones. A package does it for every process with an entry
    point in the group `driftscope.families` that names its module. DriftscopeError for a name that is taken."""
    wanted = ("NAME", "recognise", "flatten", "rename", "resolve", "stored_name", "config_json")
    missing = [name for name in wanted if not hasattr(family, name)]
    if missing:
        raise DriftscopeError(f"{getattr(family, '__name__', family)} is no family: it lacks {', '.join(missing)}")
    if family.NAME in {held.NAME for held in (*_registered, *FAMILIES)}:
        raise DriftscopeError(f"a layout is called {family.NAME} already; rename yours")
    _registered.insert(0, family)


def families() -> tuple[Family, ...]:
    """Every family in the order in which they are asked: registered ones, those of installed packages, the shipped ones."""
    _register_installed()
    return (*_registered, *FAMILIES)


@cache
def _register_installed() -> None:
    held = {family.NAME for family in (*_registered, *FAMILIES)}
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        if entry.name not in held:
            register(cast(Family, entry.load()))


def family_named(layout: str) -> Family | None:
    """The family of a layout."""
    return next((family for family in families() if layout == family.NAME), None)


def stored_value(family: Family, canonical: str, tensor: Tensor) -> Tensor:
    """A tensor as the family stores it: converted by the family's own `stored_value`, where it has one."""
    convert = getattr(family, "stored_value", None)
    return tensor if convert is None else convert(canonical, tensor)


def stated_by(family: Family) -> Stated:
    """What a family states beyond the seven names."""
    aux_ids = getattr(family, "AUX_IDS", ())
    return Stated(getattr(family, "VOCAB_MAP", None), aux_ids, family.stored_name)
