"""Figures of too few chains for an interval: drawn apart, so that they are not read as a course."""

from __future__ import annotations

import altair as alt
import numpy as np
import pandas as pd

from driftscope.show.charts.base import hover


def sure(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with a gap at every figure that has no interval though others have one."""
    return rows.assign(mean=rows["mean"].where(~_sparse(rows), np.nan))


def unsure(rows: pd.DataFrame, y: alt.Y, colour: alt.Color, title: str, form: str) -> list[alt.Chart]:
    """The figures that `sure` leaves out, as hollow points without a line; [] where there are none."""
    few = rows[_sparse(rows) & rows["mean"].notna()]
    if few.empty:
        return []
    points = alt.Chart(few.assign(note="too few chains for an interval")).mark_point(size=34, filled=False, opacity=0.7)
    tips = [*hover(few, title, form), alt.Tooltip("note:N", title="note")]
    return [points.encode(x=alt.X("step:Q"), y=y, color=colour, tooltip=tips)]


def _sparse(rows: pd.DataFrame) -> pd.Series:
    known = rows["low"].notna() & rows["high"].notna()
    return ~known if known.any() else pd.Series(False, index=rows.index)
