"""A drafter as it was opened: switches, weights, and what was seen of the files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from driftscope.checkpoints.config import DrafterConfig


@dataclass(frozen=True)
class Checkpoint:
    """A drafter as it was stored and as it will be run."""

    path: str
    sha256: str
    """Over the bytes of the weight files."""
    layout: str
    reason: str
    """Why the layout was recognised."""
    config: DrafterConfig
    weights: dict[str, torch.Tensor]
    """Canonical name -> tensor, in the stored dtype, still on disk until it is read; those switched off included."""
    target_name: str | None
    """The target that the config records."""
    raw_config: dict[str, Any]
    warnings: tuple[str, ...]
    """What was assumed and leaves no trace in the weights, and what was left out."""
    names: Mapping[str, str]
    """Canonical -> stored tensor name."""
    unused: tuple[str, ...]
    """Stored tensors that mean nothing here."""
    never_applied: tuple[str, ...] = ()
    """Canonical tensors that are stored but switched off."""
