"""From a source to a Reading: layout, switches, names, and everything that is wrong, without loading the weights."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from driftscope.checkpoints.config import DrafterConfig
from driftscope.checkpoints.families import experts
from driftscope.checkpoints.families import parallel_drafting as masks
from driftscope.checkpoints.families.registry import Family, families, stated_by
from driftscope.checkpoints.reading import names, refuse
from driftscope.checkpoints.reading.board import Stated, Switchboard
from driftscope.checkpoints.reading.files import Source, TensorInfo, some
from driftscope.checkpoints.reading.quantised import dequantised
from driftscope.checkpoints.sizes import expected_shapes
from driftscope.errors import CheckpointError

_FLOATS = ("float16", "bfloat16", "float32", "float64")
_OWN_DTYPE = {"d2t": ("int64", "int32"), "t2d": ("bool", "uint8", "int64")}


@dataclass
class Reading:
    """What a checkpoint turned out to be. `problems` keep it from running; opening raises the first of them."""

    source: Source
    layout: str
    reason: str
    config: DrafterConfig | None
    """None where the tensors and the config contradict each other so that no switches follow; `problems` says why."""
    names: dict[str, str]
    """Canonical -> stored name."""
    infos: dict[str, TensorInfo]
    """Canonical name -> dtype and shape."""
    unused: list[str]
    """Stored names that no switch gives a meaning to."""
    missing: list[str] = field(default_factory=list)
    """Canonical names that the switches need and nobody stored."""
    never_applied: list[str] = field(default_factory=list)
    """Canonical names that are stored but switched off."""
    warnings: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    raw: dict[str, Any] = field(default_factory=dict)
    """The config as the family looks its switches up in it."""
    stated: Stated = field(default_factory=Stated)
    """What its layout states of itself."""
    stacked: experts.Parts = field(default_factory=dict)
    """Canonical name of stacked experts -> the stored names of each expert's tensors."""

    def load(self, canonical: str) -> torch.Tensor:
        if canonical not in self.stacked:
            tensor, shape = self.source.load(self.names[canonical]), self.infos[canonical].shape
            # Padding is cut off. Writers differ in how many dimensions of 1 stand before the width of a mask.
            return tensor[: shape[0]] if tensor.ndim == len(shape) > 0 else tensor.reshape(shape)
        # Filled in place: the experts of a large head are most of its bytes.
        info = self.infos[canonical]
        filled = torch.empty(info.shape, dtype=getattr(torch, info.dtype))
        for slot, pieces in zip(filled, self.stacked[canonical], strict=True):
            for part, name in zip(slot.chunk(len(pieces)), pieces, strict=True):
                part.copy_(self.source.load(name))
        return filled


def read(source: Source, overrides: Mapping[str, Any] | None = None, target: Any | None = None) -> Reading:
    """Recognise and resolve a checkpoint.

    Args:
        target: the target's text config, which fills what the checkpoint leaves open.

    Raises:
        CheckpointError: no drafter layout, one that is recognised and refused, or an override that no switch has.
    """
    _check_config(source.config)
    source = dequantised(source)
    refuse.check(source)
    bare, outside, notes = names.unwrap(source.infos)
    family, reason = recognise(bare, source)
    raw = family.flatten(source.config)
    stored, unused = _rename(bare, family.rename)
    single = {canonical: source.infos[name] for canonical, name in stored.items()}
    infos, stacked = experts.stack(single)
    if (mask := infos.get(masks.TENSOR)) is not None and set(mask.shape[:-1]) <= {1}:
        infos[masks.TENSOR] = TensorInfo(mask.dtype, (1, 1, mask.numel))
    reading = Reading(source, family.NAME, reason, None, {}, infos, unused + outside, raw=raw)
    reading.stacked = {name: [tuple(stored[n] for n in row) for row in rows] for name, rows in stacked.items()}
    reading.names = {name: stored[name] if name in stored else _spread(reading.stacked[name]) for name in infos}
    reading.warnings += source.warnings + notes
    frequencies = next((name for name in unused if name.endswith("rotary_emb.inv_freq")), None)
    known = infos | ({"inv_freq": source.infos[frequencies]} if frequencies else {})
    reading.stated = stated_by(family)
    board = Switchboard(raw, known, reading.load, overrides, target, reading.stated)
    try:
        family.resolve(board)
        reading.infos |= {name: board.infos[name] for name in board.trimmed}
    except CheckpointError as error:
        reading.problems.append(str(error))
    else:
        _settle(reading, board.config())
        reading.problems = board.problems + reading.problems
    reading.problems += _bad_dtypes(reading.infos, reading.names)
    reading.warnings += board.warnings
    return reading


def _spread(rows: list[tuple[str, ...]]) -> str:
    """One name for the tensors of all experts."""
    return ", ".join(re.sub(r"\.experts\.\d+\.", f".experts.0..{len(rows) - 1}.", name) for name in rows[0])


def recognise(bare: Mapping[str, str], source: Source) -> tuple[Family, str]:
    """(family, why)."""
    for family in families():
        if reason := family.recognise(bare, source.config):
            return family, reason
    first = ", ".join(list(bare)[:4])
    raise CheckpointError(f"{source.path}: no drafter layout that is known here (tensors: {first}, ...)")


def _check_config(config: Mapping[str, Any]) -> None:
    """The two keys that layouts are recognised by have the type that every writer gives them."""
    architectures = config.get("architectures")
    if architectures is not None and not (
        isinstance(architectures, list) and all(isinstance(name, str) for name in architectures)
    ):
        raise CheckpointError(f"config: architectures is {architectures!r}, expected a list of names")
    kind = config.get("speculators_model_type")
    if kind is not None and not isinstance(kind, str):
        raise CheckpointError(f"config: speculators_model_type is {kind!r}, expected a name")


def _settle(reading: Reading, config: DrafterConfig) -> None:
    """Compare what is stored with what the switches apply."""
    reading.config = config
    wanted = expected_shapes(config)
    reading.missing = [name for name in wanted if name not in reading.names]
    reading.never_applied = [name for name in reading.names if name not in wanted and name not in ("t2d", "d2t")]
    if reading.missing:
        reading.problems.append(_missing(reading.missing, config, reading.stated))
    reading.problems += [
        f"{reading.names[name]} has shape {list(reading.infos[name].shape)}, but the rest asks for {list(shape)}"
        for name, shape in wanted.items()
        if name in reading.infos and reading.infos[name].shape != shape
    ]


def _rename(bare: Mapping[str, str], rename: Callable[[str], str | None]) -> tuple[dict[str, str], list[str]]:
    stored: dict[str, str] = {}
    unused: list[str] = []
    for short, name in bare.items():
        canonical = rename(short)
        if canonical is None:
            unused.append(name)
        elif canonical in stored:
            raise CheckpointError(f"{stored[canonical]} and {name} are both {canonical}; keep one")
        else:
            stored[canonical] = name
    return stored, unused


def _missing(absent: Sequence[str], config: DrafterConfig, stated: Stated) -> str:
    """All missing tensors in one line, with what asks for the first."""
    switch = {"fc_norm": "fc_norm", "input_norm": "input_norm", "lm_head": "head", "norm": "final_norm"}.get(
        absent[0].split(".")[0]
    )
    origin = config.origins.get(switch) if switch else None
    asked = origin is not None and origin.source in ("config", "user")
    why = f", but {origin.detail} asks for it" if origin and asked else ": the layout needs it"
    if len(absent) > 1:
        why = f", but {origin.detail} asks for the first" if origin and asked else ": the layout needs them"
    called = [stated.stored_name(name) for name in absent]
    return f"{some(called)} {'are' if len(absent) > 1 else 'is'} missing{why}"


def _bad_dtypes(infos: Mapping[str, TensorInfo], stored: Mapping[str, str]) -> list[str]:
    found = []
    for name, info in infos.items():
        allowed = _OWN_DTYPE.get(name, _FLOATS)
        if info.dtype in allowed:
            continue
        hint = "; export a quantised drafter unquantised" if name not in _OWN_DTYPE else ""
        found.append(f"{stored[name]} is stored as {info.dtype}, expected {' or '.join(allowed)}{hint}")
    return found
