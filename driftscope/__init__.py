"""driftscope: why a speculative-decoding drafter goes wrong, and from which step on."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from driftscope._version import __version__

if TYPE_CHECKING:
    from driftscope.api import load_pair, open_run, probe

__all__ = ["__version__", "load_pair", "open_run", "probe"]

# Loaded on first use, so that `import driftscope` does not import torch.
_LAZY = {"load_pair": "driftscope.api", "open_run": "driftscope.api", "probe": "driftscope.api"}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_LAZY])
