"""driftscope: why a speculative-decoding drafter goes wrong, and from which step on."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from driftscope._version import __version__

if TYPE_CHECKING:
    from driftscope.api import capture_prompts, load_pair, open_run, probe, probe_pair
    from driftscope.audit import audit as audit_checkpoint
    from driftscope.compare import compare as compare_runs

__all__ = [
    "__version__",
    "audit_checkpoint",
    "capture_prompts",
    "compare_runs",
    "load_pair",
    "open_run",
    "probe",
    "probe_pair",
]

# Loaded on first use, so that `import driftscope` does not import torch. None is named like a module of this package:
# importing that module would put it in the function's place.
_LAZY = {
    "audit_checkpoint": "driftscope.audit:audit",
    "capture_prompts": "driftscope.api:capture_prompts",
    "compare_runs": "driftscope.compare:compare",
    "load_pair": "driftscope.api:load_pair",
    "open_run": "driftscope.api:open_run",
    "probe": "driftscope.api:probe",
    "probe_pair": "driftscope.api:probe_pair",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        module, _, function = _LAZY[name].partition(":")
        return getattr(import_module(module), function)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_LAZY])
