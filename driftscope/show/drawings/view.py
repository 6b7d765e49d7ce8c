"""What is looked at, and what a named chart gives: the rows that it draws, and the chart."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import pandas as pd

from driftscope.show.charts.base import Chart
from driftscope.show.frames import Runs, onsets, step_figures
from driftscope.show.frames.norms import Unit
from driftscope.show.words import UNIT_NAMES


@dataclass(frozen=True)
class View:
    """Runs, and how they are looked at. What a chart has no use for changes nothing."""

    runs: Runs
    depth: int | None = None
    """Steps of the clean chains, as in `Run.summary`."""
    onsets: pd.DataFrame | None = None
    """`frames.onsets` to mark; None: those of the summaries."""
    feed: str = "drafted"
    unit: Unit = "rms"

    @cached_property
    def steps(self) -> pd.DataFrame:
        """The figures per step of the clean chains."""
        return step_figures(self.runs, self.feed, self.depth)

    @cached_property
    def marks(self) -> pd.DataFrame:
        """Onsets, which there are of the drafted chains only."""
        found = onsets(self.runs, self.depth) if self.onsets is None else self.onsets
        return found if self.feed == "drafted" else found.iloc[:0]

    def of(self, *quantities: str) -> pd.DataFrame:
        """The figures per step of some quantities."""
        return self.steps[self.steps["quantity"].isin(quantities)]

    @property
    def words(self) -> dict[str, str]:
        """What captions leave open."""
        return {"unit": UNIT_NAMES[self.unit]}


@dataclass(frozen=True)
class Shown:
    """What a named chart gives."""

    rows: pd.DataFrame
    """The rows of its table; none where nothing was measured."""
    draw: Callable[[], Chart]
    """The chart; without rows a line of text that says so."""
    sentences: tuple[str, ...] = ()


Drawing = Callable[..., Shown]
"""(view, **options) -> what is shown."""
