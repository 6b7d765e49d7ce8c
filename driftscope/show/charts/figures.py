"""Tidy rows of any probe: a panel per quantity, over the steps where there are several, else a point per condition."""

from __future__ import annotations

import altair as alt
import pandas as pd

from driftscope.show.charts.base import Chart, empty, hover, layered, lines, per_run
from driftscope.show.charts.theme import RUN_COLOURS

MOST_PANELS, MOST_LINES, MOST_POINTS = 6, 12, 40
_NO_AXES = ("run", "step", "quantity", "mean", "low", "high", "count", "counted", "prompts")


def figures(frame: pd.DataFrame) -> Chart:
    """`probe_rows` -> the first quantities, each in a panel with a scale of its own; the table beside it holds them all."""
    rows = frame.dropna(subset=["mean"])
    if rows.empty:
        return empty("The probe has no figures.")
    axes = [name for name in rows if name not in _NO_AXES and rows[name].nunique(dropna=False) > 1]
    several = [*(["run"] if rows["run"].nunique() > 1 else []), *axes]
    label = rows[several].astype(str).agg(", ".join, axis=1) if several else rows["run"]
    rows = rows.assign(label=label)
    kept = list(dict.fromkeys(rows["quantity"]))[:MOST_PANELS]
    rows = rows[rows["quantity"].isin(kept)]
    if "step" in rows and rows["step"].nunique() > 1 and rows["label"].nunique() <= MOST_LINES:
        return per_run(rows, _over_steps, by="quantity", shared=False)
    return per_run(rows, _points, by="quantity", shared=False)


def _over_steps(part: pd.DataFrame, width: int) -> Chart:
    names = list(dict.fromkeys(part["label"]))
    colours = [RUN_COLOURS[place % len(RUN_COLOURS)] for place in range(len(names))]
    legend = alt.Legend(title=None, orient="top", columns=2, symbolOpacity=1) if len(names) > 1 else None
    colour = alt.Color("label:N", scale=alt.Scale(domain=names, range=colours), legend=legend, sort=names)
    return lines(_plain(part), str(part["quantity"].iloc[0]), colour, width=width)


def _points(part: pd.DataFrame, width: int) -> Chart:
    rows = _plain(part).iloc[:MOST_POINTS]
    if "step" in rows and rows["step"].nunique() > 1:
        rows = rows.assign(label=rows["label"] + ", step " + rows["step"].astype("Int64").astype(str))
    name = str(part["quantity"].iloc[0])
    order = list(dict.fromkeys(rows["label"]))
    base = alt.Chart(rows).encode(y=alt.Y("label:N", sort=order, title=None))
    value = alt.X("mean:Q", title=name, scale=alt.Scale(zero=False))
    points = base.mark_point(filled=True, size=46, opacity=1).encode(x=value, tooltip=hover(rows, name))
    bars = base.mark_rule(style="interval").encode(x=alt.X("low:Q", title=name), x2=alt.X2("high:Q"))
    return layered(bars, points, width=width, height=max(60, 22 * len(order)))


def _plain(part: pd.DataFrame) -> pd.DataFrame:
    """Without columns that say nothing of this quantity."""
    return part.dropna(axis="columns", how="all").assign(low=part["low"], high=part["high"])
