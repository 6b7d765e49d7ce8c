"""inspect_checkpoint: what a checkpoint holds and how it is read, from headers and the few tensors worth a look."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from driftscope.checkpoints.config import DrafterConfig
from driftscope.checkpoints.dead import dead_tensors
from driftscope.checkpoints.engines import EngineReading, engine_readings
from driftscope.checkpoints.fit import fit_to_target, text_config
from driftscope.checkpoints.opening import count_not_finite, read_source, recorded_target
from driftscope.checkpoints.reader import Reading
from driftscope.checkpoints.reading.aux_ids import depth
from driftscope.checkpoints.reading.files import open_source
from driftscope.checkpoints.reading.vocab import VocabMap, read_vocab_map
from driftscope.checkpoints.unscaled import unscaled_float8
from driftscope.errors import CheckpointError, DriftscopeError

_HASHED_AT_MOST = 2**30
Status = Literal["used", "never applied", "unused", "missing"]


@dataclass(frozen=True)
class TensorReport:
    """One tensor of the checkpoint, or one that is not there."""

    name: str
    """As stored; the canonical name where it is missing."""
    canonical: str | None
    dtype: str | None
    shape: tuple[int, ...] | None
    status: Status


@dataclass(frozen=True)
class NormReport:
    """The weights of one norm. All ones is what a norm looks like that was never trained, or never loaded."""

    name: str
    mean: float | None
    low: float | None
    high: float | None
    all_ones: bool
    not_finite: int


@dataclass(frozen=True)
class Inspection:
    """Everything `inspect_checkpoint` found."""

    path: str
    files: tuple[str, ...]
    nbytes: int
    sha256: str | None
    """None above 1 GiB, where hashing would take longer than everything else."""
    layout: str
    reason: str
    target_name: str | None
    config: DrafterConfig | None
    """None where no switches follow; `problems` says why."""
    config_path: str
    """Where the config was read; empty without one."""
    parameters: int
    """Entries of all tensors that are used."""
    tensors: tuple[TensorReport, ...]
    norms: tuple[NormReport, ...]
    vocab: VocabMap | None
    position_limit: int | None
    engines: tuple[EngineReading, ...]
    warnings: tuple[str, ...]
    problems: tuple[str, ...]
    """What keeps it from being opened, or from running on the given target."""

    @property
    def by_status(self) -> dict[Status, list[str]]:
        """Status -> names of the tensors that have it."""
        found: dict[Status, list[str]] = {"used": [], "never applied": [], "unused": [], "missing": []}
        for tensor in self.tensors:
            found[tensor.status].append(tensor.name)
        return found

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready: no tensors, no NaN."""
        config = self.config
        origins = {} if config is None else config.origins
        switches = {} if config is None else config.switches()
        return {
            "path": self.path,
            "files": list(self.files),
            "bytes": self.nbytes,
            "sha256": self.sha256,
            "layout": self.layout,
            "reason": self.reason,
            "target": self.target_name,
            "config_path": self.config_path,
            "switches": {
                name: {"value": value, "origin": origins[name].source, "detail": origins[name].detail}
                for name, value in switches.items()
            },
            "parameters": self.parameters,
            "tensors": [asdict(tensor) for tensor in self.tensors],
            "norms": [asdict(norm) for norm in self.norms],
            "vocab": self.vocab.to_dict() if self.vocab else None,
            "position_limit": self.position_limit,
            "engines": [reading.to_dict() for reading in self.engines],
            "warnings": list(self.warnings),
            "problems": list(self.problems),
        }


def inspect_checkpoint(
    path: str | Path,
    *,
    overrides: Mapping[str, Any] | None = None,
    revision: str | None = None,
    target_config: Any | None = None,
) -> Inspection:
    """Look at a checkpoint without a target and without loading its large tensors.

    Above 1 GiB only norms, d2t and t2d are read and everything else comes from headers, so the cost does not grow with the
    file; below, it is hashed and its tensors are looked through for dead ones. What would keep `open_checkpoint` from
    opening it is in `problems`.

    Args:
        path, overrides, revision: as in `open_checkpoint`.
        target_config: transformers config of the target, where the fit is to be checked as well.

    Returns:
        What is known of it: switches with their origins, tensors, problems.

    Raises:
        CheckpointError: not readable at all, or no drafter.
    """
    source = open_source(path, revision)
    target = text_config(target_config)
    reading = read_source(source, overrides, target)
    problems = list(reading.problems)
    config = reading.config
    if config is not None and target_config is not None:
        try:
            config = fit_to_target(config, target_config)
        except DriftscopeError as error:
            problems.append(str(error))
    norms = tuple(_norm(name, reading) for name in reading.names if _is_norm(name) and _readable(name, reading))
    problems += [f"{norm.name} holds {norm.not_finite} NaN or infinite values" for norm in norms if norm.not_finite]
    weights = _looked_at(reading, source.nbytes)
    if config is not None:
        problems += [dead.line(reading.names[dead.name]) for dead in dead_tensors(config, weights)]
    warnings = [*reading.warnings, *_untrained(norms), *unscaled_float8(weights, reading.names)]
    return Inspection(
        path=source.path,
        files=tuple(file.name for file in source.files),
        nbytes=source.nbytes,
        sha256=source.sha256() if source.nbytes <= _HASHED_AT_MOST else None,
        layout=reading.layout,
        reason=reading.reason,
        target_name=recorded_target(source.config) or (source.path if source.inside else None),
        config=config,
        config_path=source.config_path,
        parameters=sum(info.numel for name, info in reading.infos.items() if name not in reading.never_applied),
        tensors=tuple(_tensors(reading)),
        norms=norms,
        vocab=_vocab(reading),
        position_limit=_position_limit(config),
        engines=tuple(engine_readings(config, source.config, reading.names, depth(target)) if config else ()),
        warnings=tuple(warnings),
        problems=tuple(problems),
    )


def _looked_at(reading: Reading, nbytes: int) -> dict[str, torch.Tensor]:
    """Tensors that are read for their values; of a file above 1 GiB only the norms, which are small."""
    if reading.config is None:
        return {}
    chosen = [name for name in reading.names if name not in reading.never_applied and _readable(name, reading)]
    chosen = [name for name in chosen if nbytes <= _HASHED_AT_MOST or _is_norm(name)]
    return {name: reading.load(name) for name in chosen}


def _position_limit(config: DrafterConfig | None) -> int | None:
    """None where neither the config nor the class of the layout gives one."""
    origin = config.origins["rope.max_position"] if config else None
    known = origin is not None and (origin.source != "default" or origin.detail != "")
    return config.rope.max_position if config and known else None


def _tensors(reading: Reading) -> list[TensorReport]:
    reports = []
    for canonical, name in reading.names.items():
        info = reading.infos[canonical]
        status: Status = "never applied" if canonical in reading.never_applied else "used"
        reports.append(TensorReport(name, canonical, info.dtype, info.shape, status))
    for name in reading.unused:
        info = reading.source.infos[name]
        reports.append(TensorReport(name, None, info.dtype, info.shape, "unused"))
    return reports + [TensorReport(name, name, None, None, "missing") for name in reading.missing]


def _is_norm(canonical: str) -> bool:
    return "norm" in canonical


def _readable(canonical: str, reading: Reading) -> bool:
    return reading.infos[canonical].dtype in ("float16", "bfloat16", "float32", "float64")


def _norm(canonical: str, reading: Reading) -> NormReport:
    weight = reading.load(canonical)
    bad = count_not_finite(weight)
    name = reading.names[canonical]
    if bad or not weight.numel():
        return NormReport(name, None, None, None, False, bad)
    weight = weight.to(torch.float32)
    mean, low, high = (float(value) for value in (weight.mean(), weight.min(), weight.max()))
    mean = mean if math.isfinite(mean) else float(weight.double().mean())
    return NormReport(name, mean, low, high, low == high == 1.0, 0)


def _untrained(norms: tuple[NormReport, ...]) -> list[str]:
    ones = [norm.name for norm in norms if norm.all_ones]
    if not ones:
        return []
    what = "every norm is" if len(ones) == len(norms) else f"{', '.join(ones)} {'are' if len(ones) > 1 else 'is'}"
    return [f"{what} exactly ones: not trained, or not saved"]


def _vocab(reading: Reading) -> VocabMap | None:
    if "d2t" not in reading.names or not reading.infos["d2t"].dtype.startswith("int"):
        return None
    t2d = reading.load("t2d") if "t2d" in reading.names else None
    size = reading.config.vocab_size if reading.config else None
    try:
        return read_vocab_map(reading.load("d2t"), t2d, size, reading.stated.vocab_map)
    except (RuntimeError, CheckpointError):
        return None
