"""What a picture of a run consists of."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from driftscope.show.charts.base import Chart


@dataclass(frozen=True)
class Picture:
    """One chart with what it needs to be read."""

    name: str
    """Unique, also a file name."""
    section: str
    title: str
    about: str
    chart: Chart
    table: pd.DataFrame
    sentences: tuple[str, ...] = ()
