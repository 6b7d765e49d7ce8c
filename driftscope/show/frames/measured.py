"""Tidy rows of any probe, for several runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from driftscope.probes import known
from driftscope.probes.held import Held, figures_of, held, record_of, rows_of
from driftscope.runs.run import Run
from driftscope.show.frames.base import Runs, labelled, recorded

_EMPTY = ("quantity", "count", "counted")
"""Columns that a frame has at least."""


def held_probes(runs: Runs) -> list[Held]:
    """The probes that one of the runs holds: what the verdict leads with first, then in the order in which they are listed."""
    found = {item.name: item for run in runs for item in held(run)}
    return sorted(found.values(), key=lambda item: not item.record.at_top)


def measured(runs: Runs, probe: str, depth: int | None = None) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(label, figures) of the runs that hold the probe."""
    for label, run in labelled(runs).items():
        figures = probe_figures_of(run, probe, depth)
        if figures:
            yield label, figures


def probe_figures_of(run: Run, probe: str, depth: int | None = None) -> Mapping[str, Any]:
    """The figures of a probe; {} where the run does not hold it."""
    item = next((item for item in held(run) if item.name == probe), None)
    return {} if item is None else figures_of(run, item, depth)


def probe_rows(runs: Runs, probe: str, depth: int | None = None) -> pd.DataFrame:
    """The tidy rows of a probe (`Record.rows`) with `run`; runs without it have none."""
    records: list[dict[str, Any]] = []
    axes = record_of(known().get(probe)).axes
    for label, run in labelled(runs).items():
        for item in held(run):
            if item.name == probe:
                figures = figures_of(run, item, depth)
                records += [{"run": label, **row} for row in rows_of(item.record, figures)]
    return recorded(records, ("run", *axes, *(name for name in _EMPTY if name not in axes)), runs)


def sentences(runs: Runs, probe: str) -> list[str]:
    """What a probe says in words, with the run in front."""
    found = []
    for label, run in labelled(runs).items():
        for item in held(run):
            figures = figures_of(run, item) if item.name == probe and item.record.sentences else {}
            if figures and item.record.sentences:
                for condition, text in item.record.sentences(figures):
                    where = f"{label}, {condition}" if condition else label
                    found.append(f"{where}: {text}")
    return found
