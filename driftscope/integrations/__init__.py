"""Drift while a drafter is trained: `drift_metrics` for any loop, `DriftCallback` for the Trainer of transformers.

Everything is loaded when it is asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from driftscope.integrations.early import EarlyWarning
    from driftscope.integrations.training import TrainingCapture, drift_metrics, training_capture
    from driftscope.integrations.transformers import DriftCallback

__all__ = ["DriftCallback", "EarlyWarning", "TrainingCapture", "drift_metrics", "training_capture"]

_HOMES = {
    "DriftCallback": "transformers",
    "EarlyWarning": "early",
    "TrainingCapture": "training",
    "drift_metrics": "training",
    "training_capture": "training",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
