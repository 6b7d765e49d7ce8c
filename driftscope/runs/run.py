"""A run: its folder, and the summary and charts that are made of what it holds."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

from driftscope.runs.folder import RunFolder
from driftscope.runs.schema import RunInfo
from driftscope.views import VIEWS


class Run(RunFolder):
    """Everything measured on one checkpoint. Use `create`, `open` or `resume`."""

    def __init__(self, folder: Path, info: RunInfo) -> None:
        super().__init__(folder, info)
        self._summaries: dict[int | None, tuple[tuple[str, ...], dict[str, Any]]] = {}

    def summary(self, depth: int | None = None) -> dict[str, Any]:
        """The figures that `driftscope probe --json` prints (`driftscope.probes.held.run_summary`); kept until a shard is
        added or removed."""
        stamp = self.stamp()
        held = self._summaries.get(depth)
        if held is None or held[0] != stamp:
            held = self._summaries[depth] = (stamp, VIEWS["summary"](self, depth))
        return held[1]

    @cached_property
    def charts(self) -> Any:
        """The charts of this run for notebooks, `run.charts.norms()` (`driftscope.show.chartbook.ChartBook`)."""
        return VIEWS["charts"](self)
