"""The one picture: growth of the carry, where attention is, and how far it left its place, step by step."""

from __future__ import annotations

import altair as alt
import pandas as pd

from driftscope.charts import attention, norms
from driftscope.charts.base import Chart

_HEIGHT = 170


def overview(figures: pd.DataFrame, onsets: pd.DataFrame | None = None) -> Chart:
    """`step_figures`, `onsets` -> growth, bucket masses and excess per step with intervals and onsets, below each other."""
    panels = [
        norms.growth(figures, onsets, height=_HEIGHT).properties(title="Carried state: growth of its norm"),
        _titled(attention.masses(figures, onsets, height=_HEIGHT), "Attention: where it is"),
        _titled(attention.excess(figures, onsets, height=_HEIGHT), "Attention: beyond the same place without drafting"),
    ]
    return alt.vconcat(*panels, spacing=24).resolve_scale(
        color="independent", shape="independent", strokeDash="independent"
    )


def _titled(chart: Chart, title: str) -> Chart:
    return chart.properties(title=title)
