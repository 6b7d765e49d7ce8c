"""open_checkpoint: a path or Hub id in, switches and weights out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from driftscope.checkpoints.checkpoint import Checkpoint
from driftscope.checkpoints.fit import fit_to_target, text_config
from driftscope.checkpoints.reader import Reading, read
from driftscope.checkpoints.reading.files import Source, from_state_dict, open_source
from driftscope.checkpoints.reading.padding import fit_rows
from driftscope.checkpoints.unscaled import unscaled_float8
from driftscope.errors import CheckpointError

_CHUNK = 2**22


def open_checkpoint(
    path: str | Path,
    *,
    overrides: Mapping[str, Any] | None = None,
    revision: str | None = None,
    target_config: Any | None = None,
) -> Checkpoint:
    """Open a drafter checkpoint of any published EAGLE layout.

    Args:
        path: a .pt, .pth, .bin or .safetensors file, a folder, or a Hub id.
        overrides: switches by their DrafterConfig name (`carry`, `rope.theta`, `aux_boundaries`, ...); they win over
            the config and are marked `user`.
        revision: of the Hub id.
        target_config: transformers config of the target; fills what the checkpoint leaves open, and must fit.

    Returns:
        The checkpoint, its tensors still on disk until they are read.

    Raises:
        CheckpointError: cannot be read, is no drafter, is incomplete or contradicts itself. One line.
        TargetError: does not fit the target.
    """
    return _open(open_source(path, revision), overrides, target_config)


def open_state_dict(
    state: Mapping[str, torch.Tensor],
    config: Mapping[str, Any] | None = None,
    *,
    overrides: Mapping[str, Any] | None = None,
    target_config: Any | None = None,
) -> Checkpoint:
    """As `open_checkpoint`, for the state dict of a live module and its config as a dict."""
    return _open(from_state_dict(state, config), overrides, target_config)


def _open(source: Source, overrides: Mapping[str, Any] | None, target_config: Any | None) -> Checkpoint:
    reading = read_source(source, overrides, text_config(target_config))
    if reading.problems:
        # What was left unread may be what is missing.
        unread = [note for note in reading.warnings if " not read" in note]
        raise CheckpointError(f"{source.path}: {reading.problems[0]}{''.join(f' ({note})' for note in unread)}")
    assert reading.config is not None  # without problems there are switches
    config = reading.config if target_config is None else fit_to_target(reading.config, target_config)
    weights = fit_rows(config, {name: _checked(name, reading) for name in reading.names})
    return Checkpoint(
        path=source.path,
        sha256=source.sha256(),
        layout=reading.layout,
        reason=reading.reason,
        config=config,
        weights=weights,
        target_name=recorded_target(source.config) or (source.path if source.inside else None),
        raw_config=dict(source.config),
        warnings=(*reading.warnings, *unscaled_float8(weights, reading.names)),
        names=reading.names,
        unused=tuple(reading.unused),
        never_applied=tuple(reading.never_applied),
    )


def read_source(source: Source, overrides: Mapping[str, Any] | None, target: Any | None) -> Reading:
    """`reader.read`, with the path in front of every error."""
    try:
        return read(source, overrides, target)
    except CheckpointError as error:
        unread = "".join(f" ({note})" for note in source.warnings if " not read" in note)
        text = str(error) if str(error).startswith(source.path) else f"{source.path}: {error}"
        raise CheckpointError(text + unread) from error


def recorded_target(raw: Mapping[str, Any]) -> str | None:
    """The target's name where a config records one."""
    places = (
        ("speculators_config", "verifier", "name_or_path"),
        ("target_model_name_or_path",),
        ("target_model_path",),
        ("target_model",),
        ("base_model_name_or_path",),
        ("verifier_name_or_path",),
        ("eagle_config", "target_model_name_or_path"),
    )
    for place in places:
        value: Any = raw
        for part in place:
            value = value.get(part) if isinstance(value, Mapping) else None
        if isinstance(value, str) and value:
            return value
    return None


def _checked(name: str, reading: Reading) -> torch.Tensor:
    tensor = reading.load(name)
    if name == "d2t":
        return tensor.to(torch.int64)
    if name == "t2d":
        return tensor.to(torch.bool)
    bad = count_not_finite(tensor)
    if bad:
        raise CheckpointError(
            f"{reading.source.path}: {reading.names[name]} holds {bad} NaN or infinite values of {tensor.numel()}"
        )
    return tensor


def count_not_finite(tensor: torch.Tensor) -> int:
    """How many entries are NaN or infinite; in pieces, so that a large tensor needs no copy of itself."""
    flat = tensor.reshape(-1)
    return sum(int((~torch.isfinite(flat[i : i + _CHUNK])).sum()) for i in range(0, flat.numel(), _CHUNK))
