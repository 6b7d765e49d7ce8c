"""Traffic: acceptance and cost of drift by group, a panel for each way of grouping."""

from __future__ import annotations

import altair as alt
import pandas as pd

from driftscope.show.charts.base import Chart, empty, hover, layered, per_run

_TITLES = {
    "category": ("served", "accepted tokens a round"),
    "language": ("served", "accepted tokens a round"),
    "token": ("accepted", "share drafted right"),
    "place": ("accepted", "share drafted right"),
}
_NAMES = {"category": "category", "language": "language", "token": "kind of token", "place": "place in the answer"}


def traffic(frame: pd.DataFrame) -> Chart:
    """`traffic` -> points with intervals, one panel for category, language, kind of token and place in the answer."""
    wanted = pd.Series([_TITLES.get(by, ("", ""))[0] for by in frame["by"]], index=frame.index, dtype=object)
    rows = frame[frame["quantity"] == wanted]
    if rows.empty:
        return empty("The traffic probe was not asked, or acceptance was not measured.")
    rows = rows.assign(panel=rows["by"].map(_NAMES))
    return per_run(rows, _points, by="panel", shared=False)


def _points(part: pd.DataFrame, width: int) -> alt.LayerChart:
    title = _TITLES[str(part["by"].iloc[0])][1]
    order = list(dict.fromkeys(part["group"]))
    name = str(part["panel"].iloc[0])
    base = alt.Chart(part).encode(y=alt.Y("group:N", sort=order, title=name))
    value = alt.X("mean:Q", title=title, scale=alt.Scale(zero=False))
    points = base.mark_point(filled=True, size=46, opacity=1).encode(x=value, tooltip=hover(part, title, ".3f"))
    bars = base.mark_rule().encode(x=alt.X("low:Q", title=title), x2=alt.X2("high:Q"))
    return layered(bars, points, width=width, height=max(60, 22 * len(order)))
