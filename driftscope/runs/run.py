"""A run: its folder, its summary, and what is attached by what is built on runs."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

from driftscope.runs.folder import RunFolder
from driftscope.runs.schema import RunInfo
from driftscope.runs.summary import CLEAN, summarise


class Run(RunFolder):
    """Everything measured on one checkpoint. Use `create`, `open` or `resume`."""

    charts: Any
    """The charts of this run for notebooks, `run.charts.norms()`; attached by `driftscope.api`."""

    def __init__(self, folder: Path, info: RunInfo) -> None:
        super().__init__(folder, info)
        self._summaries: dict[int | None, tuple[tuple[str, ...], dict[str, Any]]] = {}

    def summary(self, depth: int | None = None) -> dict[str, Any]:
        """The figures that `driftscope probe --json` prints (`driftscope.runs.summary.summarise`); kept until the clean
        shards change."""
        stamp = tuple(str(shard) for shard in self._shards(CLEAN))
        held = self._summaries.get(depth)
        if held is None or held[0] != stamp:
            held = self._summaries[depth] = (stamp, summarise(self, depth))
        return held[1]

    @classmethod
    def attach(cls, name: str, view: Callable[[Run], Any]) -> None:
        """Make `run.NAME` what `view` returns, made on first use: how what is built on runs is reached from one."""
        attribute = cached_property(view)
        attribute.__set_name__(cls, name)
        setattr(cls, name, attribute)
