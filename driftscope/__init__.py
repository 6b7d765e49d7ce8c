"""driftscope: why a speculative-decoding drafter goes wrong, and from which step on."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from driftscope._version import __version__
from driftscope.views import VIEWS

if TYPE_CHECKING:
    from driftscope.api import capture_prompts, load_pair, open_run, probe, probe_pair
    from driftscope.audit import audit as audit_checkpoint
    from driftscope.compare import compare as compare_runs
    from driftscope.runs.columns import Table
    from driftscope.runs.run import Run
    from driftscope.show.chartbook import ChartBook

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


def _summary(run: Run, depth: int | None = None) -> dict[str, Any]:
    from driftscope.probes.held import run_summary

    return run_summary(run, depth)


def _tables() -> dict[str, Table]:
    from driftscope.probes import declared_tables

    return declared_tables()


def _charts(run: Run) -> ChartBook:
    from driftscope.show.chartbook import ChartBook

    return ChartBook([run])


# Here, because whoever imports any module of the package imports this one first.
VIEWS.update(summary=_summary, tables=_tables, charts=_charts)


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        module, _, function = _LAZY[name].partition(":")
        return getattr(import_module(module), function)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_LAZY])
