"""Switchboard: where a family puts each switch with its origin while it reads a checkpoint."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Mapping
from typing import Any, Literal

import torch

from driftscope.checkpoints.config import DrafterConfig, Origin, OriginSource, Rope
from driftscope.checkpoints.reading.files import TensorInfo
from driftscope.errors import CheckpointError

SWITCHES = tuple(f.name for f in dataclasses.fields(DrafterConfig) if f.name not in ("origins", "rope")) + tuple(
    f"rope.{f.name}" for f in dataclasses.fields(Rope)
)
_DEFAULTS = {f.name: f.default for f in dataclasses.fields(DrafterConfig) if f.default is not dataclasses.MISSING} | {
    f"rope.{f.name}": f.default for f in dataclasses.fields(Rope)
}


@dataclasses.dataclass(frozen=True)
class Stated:
    """What a layout states of itself, so that it need not be guessed from the tensors."""

    vocab_map: Literal["offset", "index"] | None = None
    """What its map of the draft vocabulary holds: offsets, or ids of the target."""
    aux_ids: tuple[tuple[str, str], ...] = ()
    """Config keys of its own for the aux layers, each with its convention (`driftscope.checkpoints.reading.aux_ids`)."""
    stored_name: Callable[[str], str] = str
    """The name under which it stores a tensor, for messages."""


class Switchboard:
    """What is known of a checkpoint while it is read: its config, its shapes, and the switches set so far.

    A switch that the user gave is never overwritten. `problems` are what keeps the drafter from running; `warnings` are
    assumptions that leave no trace in the weights."""

    def __init__(
        self,
        raw: Mapping[str, Any],
        infos: Mapping[str, TensorInfo],
        load: Callable[[str], torch.Tensor],
        overrides: Mapping[str, Any] | None = None,
        target: Any | None = None,
        stated: Stated | None = None,
    ) -> None:
        self.raw = raw
        self.infos = dict(infos)
        """Canonical name -> dtype and shape."""
        self.load = load
        self.target = target
        """The target's text config, or None."""
        self.stated = stated or Stated()
        self.trimmed: dict[str, tuple[int, ...]] = {}
        """Canonical name -> shape that is read of it, from its first row on."""
        self.values: dict[str, Any] = {}
        self.origins: dict[str, Origin] = {}
        self.warnings: list[str] = []
        self.problems: list[str] = []
        for name, value in (overrides or {}).items():
            self.values[name] = check_switch(name, value)
            self.origins[name] = Origin("user", f"--set {name}")

    def put(self, switch: str, value: Any, source: OriginSource, detail: str = "") -> Any:
        """Set a switch unless the user did; returns the value that holds."""
        if switch not in self.origins or self.origins[switch].source != "user":
            self.values[switch] = value
            self.origins[switch] = Origin(source, detail)
        return self.values[switch]

    def get(self, switch: str) -> Any:
        return self.values.get(switch, _DEFAULTS.get(switch))

    def user(self, switch: str) -> Any | None:
        """The user's value of a switch, or None."""
        origin = self.origins.get(switch)
        return self.values[switch] if origin is not None and origin.source == "user" else None

    def raw_value(self, *paths: str) -> tuple[Any, str] | None:
        """(value, dotted key) of the first of these config keys that is there and not null."""
        for path in paths:
            value: Any = self.raw
            for part in path.split("."):
                value = value.get(part) if isinstance(value, Mapping) else None
            if value is not None:
                return value, path
        return None

    def number(self, *paths: str) -> tuple[int, str] | None:
        """As `raw_value`, for a positive count."""
        found = self.raw_value(*paths)
        if found is None:
            return None
        value, path = found
        if not _is_number(value) or value != int(value) or value < 1:
            raise CheckpointError(f"config: {path} is {value!r}, expected a positive whole number")
        return int(value), path

    def real(self, *paths: str) -> tuple[float, str] | None:
        """As `raw_value`, for a positive number."""
        found = self.raw_value(*paths)
        if found is None:
            return None
        value, path = found
        if not _is_number(value) or value <= 0:
            raise CheckpointError(f"config: {path} is {value!r}, expected a positive number")
        return float(value), path

    def flag(self, *paths: str) -> tuple[bool, str] | None:
        """As `raw_value`, for true or false."""
        found = self.raw_value(*paths)
        if found is None:
            return None
        value, path = found
        if not isinstance(value, bool):
            raise CheckpointError(f"config: {path} is {value!r}, expected true or false")
        return value, path

    def has(self, name: str) -> bool:
        return name in self.infos

    def shape(self, name: str, dims: int = 2) -> tuple[int, ...]:
        """The shape of a tensor that must be there.

        Raises:
            CheckpointError: it is not, or has another number of dimensions.
        """
        if name not in self.infos:
            raise CheckpointError(f"{self.stated.stored_name(name)} is missing: this layout needs it")
        shape = self.infos[name].shape
        if len(shape) != dims:
            called = self.stated.stored_name(name)
            raise CheckpointError(f"{called} has shape {list(shape)}, expected {dims} dimension{'s' * (dims > 1)}")
        return shape

    def trim(self, name: str, shape: tuple[int, ...]) -> None:
        """Read only the first rows of a tensor."""
        self.infos[name] = TensorInfo(self.infos[name].dtype, shape)
        self.trimmed[name] = shape

    def config(self) -> DrafterConfig:
        """The switches as a DrafterConfig; those never put keep the default of the field, with origin `default`."""
        plain = {name: value for name, value in self.values.items() if "." not in name}
        rope = {name.partition(".")[2]: value for name, value in self.values.items() if "." in name}
        origins = {name: self.origins.get(name, Origin("default")) for name in SWITCHES}
        return DrafterConfig(**plain, rope=Rope(**rope), origins=origins)


def check_switch(name: str, value: Any) -> Any:
    """A user's value for a switch, in the type that the switch has.

    Raises:
        CheckpointError: no such switch, or not one of its values.
    """
    if name not in SWITCHES:
        near = [known for known in SWITCHES if name.replace("-", "_") in known][:3]
        raise CheckpointError(f"no switch {name!r}" + (f"; did you mean {', '.join(near)}?" if near else ""))
    hint = str((Rope if name.startswith("rope.") else DrafterConfig).__annotations__[name.rpartition(".")[2]])
    if hint.startswith("Literal"):
        allowed = [word.strip(" \"'") for word in hint[hint.index("[") + 1 : hint.rindex("]")].split(",")]
        if value not in allowed:
            raise CheckpointError(f"{name} is {value!r}, expected one of {', '.join(allowed)}")
        return value
    if hint.startswith("tuple"):
        if value is None and "None" in hint:
            return None
        items = [value] if isinstance(value, int) else list(value) if isinstance(value, (list, tuple)) else None
        if not items or not all((isinstance(v, int) and not isinstance(v, bool)) or v is None for v in items):
            raise CheckpointError(f"{name} is {value!r}, expected whole numbers such as 2,15,27")
        return tuple(items)
    if hint == "bool":
        if not isinstance(value, bool):
            raise CheckpointError(f"{name} is {value!r}, expected true or false")
        return value
    if hint == "int | None" and value is None:
        return None
    if hint in ("int", "int | None", "float"):
        whole = hint != "float"
        if not _is_number(value) or (whole and value != int(value)):
            raise CheckpointError(f"{name} is {value!r}, expected a {'whole ' if whole else ''}number")
        return int(value) if whole else float(value)
    if hint.startswith("Mapping") and value is not None and not isinstance(value, Mapping):
        raise CheckpointError(f"{name} is {value!r}, expected an object or null")
    return value


def parse_switch(name: str, text: str) -> Any:
    """The value of a switch as it is typed on a command line: JSON, a bare word, or numbers with commas.

    Raises:
        CheckpointError: no such switch, or not one of its values.
    """
    if "," in text and not text.lstrip().startswith(("[", "{")):
        text = f"[{text}]"
    try:
        value = json.loads(text)
    except ValueError:
        value = text
    return check_switch(name, value)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
