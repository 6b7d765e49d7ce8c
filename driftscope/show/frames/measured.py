"""The figures of each probe of a run, computed once while its shards stay the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from weakref import WeakKeyDictionary

from driftscope.figures import (
    acceptance_figures,
    depth_figures,
    layers_figures,
    length_figures,
    noise_figures,
    pin_figures,
    position_limit,
    template_figures,
)
from driftscope.runs.run import Run
from driftscope.runs.summary import CLEAN
from driftscope.show.frames.base import Runs, labelled

Figures = dict[str, Any]
ACCEPTANCE_COLUMNS = ("feed", "prompt", "anchor", "step", "loop", "accepted", "sampling")
"""What acceptance beyond the summary is made of."""

_held: WeakKeyDictionary[Run, dict[str, tuple[tuple[str, ...], Figures]]] = WeakKeyDictionary()


def figures_of(run: Run, probe: str) -> Figures:
    """What `driftscope.figures` says on one probe; {} without it. `acceptance` stands on the clean chains."""
    shard = CLEAN if probe == "acceptance" else probe
    if shard not in run.probes:
        return {}
    stamp = tuple(sorted(path.name for path in (run.folder / "shards" / shard).iterdir()))
    known = _held.setdefault(run, {})
    if probe not in known or known[probe][0] != stamp:
        known[probe] = (stamp, _MEASURED[probe](run))
    return known[probe][1]


def measured(runs: Runs, probe: str) -> Iterator[tuple[str, Figures]]:
    """(label, figures) of the runs that hold the probe."""
    for label, run in labelled(runs).items():
        figures = figures_of(run, probe)
        if figures:
            yield label, figures


def _acceptance(run: Run) -> Figures:
    return acceptance_figures(run.table("anchors", CLEAN, columns=ACCEPTANCE_COLUMNS))


def _from(function: Callable[..., Figures], probe: str, *tables: str) -> Callable[[Run], Figures]:
    return lambda run: function(*(run.table(name, probe=probe) for name in tables))


def _length(run: Run) -> Figures:
    tables = (run.table(name, probe="length") for name in ("steps", "heads", "conditions", "variants"))
    return length_figures(*tables, position_limit=position_limit(run))


_MEASURED: dict[str, Callable[[Run], Figures]] = {
    "acceptance": _acceptance,
    "noise": _from(noise_figures, "noise", "steps", "variants"),
    "pin": _from(pin_figures, "pin", "steps", "heads"),
    "depth": _from(depth_figures, "depth", "anchors", "heads"),
    "layers": _from(layers_figures, "layers", "similarity"),
    "template": _from(template_figures, "template", "steps", "heads", "conditions"),
    "length": _length,
}
