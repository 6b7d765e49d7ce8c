"""Published drafter layouts, read into a DrafterConfig and weights under one set of names.

Only the config is imported at once; everything that needs torch is loaded when it is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from driftscope.checkpoints.config import DrafterConfig, Origin, Rope

if TYPE_CHECKING:
    from driftscope.checkpoints.checkpoint import Checkpoint
    from driftscope.checkpoints.fit import fit_to_target, target_warnings
    from driftscope.checkpoints.inspection import Inspection, inspect_checkpoint
    from driftscope.checkpoints.opening import open_checkpoint, open_state_dict
    from driftscope.checkpoints.reading.board import parse_switch
    from driftscope.checkpoints.save import LAYOUTS, save_checkpoint

__all__ = [
    "LAYOUTS",
    "Checkpoint",
    "DrafterConfig",
    "Inspection",
    "Origin",
    "Rope",
    "fit_to_target",
    "inspect_checkpoint",
    "open_checkpoint",
    "open_state_dict",
    "parse_switch",
    "save_checkpoint",
    "target_warnings",
]

_HOMES = {
    "LAYOUTS": "save",
    "Checkpoint": "checkpoint",
    "Inspection": "inspection",
    "fit_to_target": "fit",
    "inspect_checkpoint": "inspection",
    "open_checkpoint": "opening",
    "open_state_dict": "opening",
    "parse_switch": "reading.board",
    "save_checkpoint": "save",
    "target_warnings": "fit",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
