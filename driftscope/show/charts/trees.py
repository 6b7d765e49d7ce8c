"""Trees: accepted tokens by the number of nodes that are verified, beside the chain of as many."""

from __future__ import annotations

import altair as alt
import pandas as pd

from driftscope.show.charts.base import Chart, empty, hover, layered, per_run
from driftscope.show.charts.theme import RUN_COLOURS


def trees(frame: pd.DataFrame) -> Chart:
    """`trees` -> a line for each tree and one for the chain, served length over nodes."""
    rows = frame[frame["quantity"].isin(["served", "chain"])]
    if rows.empty:
        return empty("The trees probe was not run, or too few rounds were walked.")
    chain = rows[rows["quantity"] == "chain"].assign(tree="chain of as many").drop_duplicates(["run", "nodes"])
    rows = pd.concat([rows[rows["quantity"] == "served"], chain]).sort_values(["tree", "nodes"])
    names = list(dict.fromkeys([*rows["tree"].drop(chain.index, errors="ignore"), *rows["tree"]]))
    scale = alt.Scale(domain=names, range=[RUN_COLOURS[place % len(RUN_COLOURS)] for place in range(len(names))])
    colour = alt.Color("tree:N", scale=scale, legend=alt.Legend(title=None, orient="top", symbolOpacity=1))

    def draw(part: pd.DataFrame, width: int) -> alt.LayerChart:
        x = alt.X("nodes:Q", title="nodes", scale=alt.Scale(type="log", base=2, nice=False), axis=alt.Axis(format="d"))
        base = alt.Chart(part).encode(x=x, color=colour)
        title = "accepted tokens a round"
        band = base.mark_area(opacity=0.12).encode(y=alt.Y("low:Q", title=title), y2=alt.Y2("high:Q"))
        value = alt.Y("mean:Q", title=title, scale=alt.Scale(zero=False))
        points = base.mark_point(filled=True, size=42, opacity=1).encode(y=value, tooltip=hover(part, title, ".3f"))
        return layered(band, base.mark_line().encode(y=value), points, width=width)

    return per_run(rows.drop(columns=["quantity", "whole"]), draw)
