"""Traffic: acceptance and cost of drift by group, a panel for each way of grouping."""

from __future__ import annotations

import altair as alt
import pandas as pd

from driftscope.show.charts.base import Chart, empty, hover, layered, per_run

_COST = "accepted tokens that drift costs"
_SHOWN = {
    "category": {"served": "accepted tokens a round", "cost": _COST},
    "language": {"served": "accepted tokens a round", "cost": _COST},
    "token": {"accepted": "share drafted right", "cost": f"{_COST}, a token"},
    "place": {"accepted": "share drafted right", "cost": f"{_COST}, a token"},
}
_NAMES = {"category": "category", "language": "language", "token": "kind of token", "place": "place in the answer"}


def traffic(frame: pd.DataFrame) -> Chart:
    """`traffic` -> points with intervals: acceptance, and the cost of drift beside it, for category, language, kind of token and
    place in the answer."""
    titles = [_SHOWN.get(by, {}).get(what) for by, what in zip(frame["by"], frame["quantity"], strict=True)]
    rows = frame.assign(title=pd.Series(titles, index=frame.index, dtype=object)).dropna(subset=["title"])
    if rows.empty:
        return empty("The traffic probe was not asked, or acceptance was not measured.")
    costs = rows["quantity"] == "cost"
    rows = rows.assign(
        panel=[f"{_NAMES[by]}{': cost' if cost else ''}" for by, cost in zip(rows["by"], costs, strict=True)]
    )
    return per_run(rows, _points, by="panel", shared=False)


def _points(part: pd.DataFrame, width: int) -> alt.LayerChart:
    title, by, cost = str(part["title"].iloc[0]), str(part["by"].iloc[0]), bool((part["quantity"] == "cost").any())
    order = list(dict.fromkeys(part["group"]))
    base = alt.Chart(part).encode(y=alt.Y("group:N", sort=order, title=_NAMES[by]))
    # A cost is read against 0, a share against the others.
    value = alt.X("mean:Q", title=title, scale=alt.Scale(zero=cost))
    points = base.mark_point(filled=True, size=46, opacity=1).encode(
        x=value, tooltip=hover(part, title, "+.3f" if cost else ".3f")
    )
    bars = base.mark_rule(style="interval").encode(x=alt.X("low:Q", title=title), x2=alt.X2("high:Q"))
    return layered(bars, points, width=width, height=max(60, 22 * len(order)))
