"""Writing a drafter in a published layout."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from driftscope.checkpoints.config import DrafterConfig
from driftscope.checkpoints.families import experts
from driftscope.checkpoints.families.registry import FAMILIES, Family, families, family_named, stored_value
from driftscope.checkpoints.reader import read
from driftscope.checkpoints.reading.files import from_state_dict
from driftscope.errors import CheckpointError

LAYOUTS = tuple(family.NAME for family in FAMILIES)
"""The shipped ones."""


def save_checkpoint(
    folder: str | Path,
    config: DrafterConfig,
    weights: Mapping[str, torch.Tensor],
    layout: str,
    extra_config: Mapping[str, Any] | None = None,
) -> Path:
    """Write `config.json` and `model.safetensors` of a drafter as one of `LAYOUTS` writes them.

    Args:
        folder: made if need be.
        config: its switches.
        weights: by canonical name.
        layout: name of a family.
        extra_config: further keys of config.json; they win, also where they break it.

    Returns:
        The folder; each file appears whole or not at all.

    Raises:
        CheckpointError: no such layout, or a switch that it cannot express.
    """
    family = family_named(layout)
    if family is None:
        raise CheckpointError(f"no layout {layout!r}; known: {', '.join(held.NAME for held in families())}")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    config, weights = _as_stated(family, config, weights)
    apart = experts.split(weights)
    tensors = {
        family.stored_name(n): stored_value(family, n, t).detach().contiguous().clone() for n, t in apart.items()
    }
    written = family.config_json(config)
    _check_round_trip(config, tensors, written, layout)
    written |= dict(extra_config or {})
    written.setdefault("torch_dtype", _dtype_word(weights))
    partial = folder / f".model.safetensors.{os.getpid()}"
    save_file(tensors, partial, metadata={"format": "pt"})
    os.replace(partial, folder / "model.safetensors")
    partial = folder / f".config.json.{os.getpid()}"
    partial.write_text(json.dumps(written, indent=2) + "\n", encoding="utf-8")
    os.replace(partial, folder / "config.json")
    return folder


def _as_stated(
    family: Family, config: DrafterConfig, weights: Mapping[str, torch.Tensor]
) -> tuple[DrafterConfig, Mapping[str, torch.Tensor]]:
    """The map of the draft vocabulary as the family holds it: ids of the target, or offsets."""
    wanted = getattr(family, "VOCAB_MAP", None)
    if wanted is None or config.vocab_map in ("none", wanted) or "d2t" not in weights:
        return config, weights
    d2t = weights["d2t"].to(torch.int64)
    place = torch.arange(len(d2t), device=d2t.device)
    values = d2t + place if wanted == "index" else d2t - place
    return dataclasses.replace(config, vocab_map=wanted), {**weights, "d2t": values}


def _check_round_trip(
    config: DrafterConfig, tensors: Mapping[str, torch.Tensor], written: Mapping[str, Any], layout: str
) -> None:
    """Raise where reading back what is about to be written would give other switches."""
    reading = read(from_state_dict(tensors, written))
    if reading.config is None or reading.problems:
        raise CheckpointError(f"these weights do not make a checkpoint: {reading.problems[0]}")
    if reading.layout != layout:
        raise CheckpointError(f"with these switches the {layout} layout would be taken for {reading.layout}")
    ours, theirs = config.switches(), reading.config.switches()
    for name, value in ours.items():
        if name != "aux_ids" and value != theirs[name]:
            raise CheckpointError(
                f"the {layout} layout cannot express {name} = {value} (it reads back as {theirs[name]})"
            )


def _dtype_word(weights: Mapping[str, torch.Tensor]) -> str:
    floats = [str(t.dtype).removeprefix("torch.") for n, t in weights.items() if t.is_floating_point()]
    return max(set(floats), key=floats.count) if floats else "float32"
