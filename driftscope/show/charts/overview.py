"""The one picture: growth of the carry, where attention is, and how far it left its place, step by step."""

from __future__ import annotations

from typing import Any

import pandas as pd

from driftscope.show.charts import attention, norms
from driftscope.show.charts.assembly import below
from driftscope.show.charts.base import Chart, resolved

_HEIGHT = 170


def overview(figures: pd.DataFrame, onsets: pd.DataFrame | None = None) -> Chart:
    """`step_figures`, `onsets` -> growth, bucket masses and excess per step with intervals and onsets, below each other."""
    panels: dict[str, Any] = {
        "Carried state: growth of its norm": norms.growth(figures, onsets, height=_HEIGHT),
        "Attention: where it is": attention.masses(figures, onsets, height=_HEIGHT),
        "Attention: beyond the same place without drafting": attention.excess(figures, onsets, height=_HEIGHT),
    }
    for title, chart in panels.items():
        chart.title = title
    return below(
        *panels.values(),
        spacing=24,
        resolve=resolved(color="independent", shape="independent", strokeDash="independent"),
    )
