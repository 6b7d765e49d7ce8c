"""Speed-up over plain decoding by the number of drafted tokens, one line a batch size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import altair as alt
import pandas as pd

from driftscope.show.charts.base import Chart, empty, hover, layered
from driftscope.show.charts.theme import RUN_COLOURS, WIDTH


def plan_frame(batches: list[Mapping[str, Any]]) -> pd.DataFrame:
    """From the `batches` of `driftscope.planning.plan.plan`: a row a batch and K, with the speed-up."""
    rows = [
        {"batch": f"batch {batch['batch']}", "K": entry["k"], **entry["speed_up"]}
        for batch in batches
        for entry in batch["choices"]
        if "speed_up" in entry
    ]
    return pd.DataFrame(rows)


def speed_up(frame: pd.DataFrame) -> Chart:
    """Points with intervals, and the line at 1 above which drafting gains."""
    if frame.empty:
        return empty("Too few rounds for a speed-up.")
    names = list(dict.fromkeys(frame["batch"]))
    scale = alt.Scale(domain=names, range=[RUN_COLOURS[place % len(RUN_COLOURS)] for place in range(len(names))])
    legend = alt.Legend(title=None, orient="top", symbolOpacity=1) if len(names) > 1 else None
    base = alt.Chart(frame).encode(
        x=alt.X("K:Q", title="drafted tokens a round", axis=alt.Axis(format="d", tickCount=int(frame["K"].max()))),
        color=alt.Color("batch:N", scale=scale, legend=legend),
    )
    title = "speed-up over plain decoding"
    value = alt.Y("mean:Q", title=title, scale=alt.Scale(zero=False))
    band = base.mark_area(opacity=0.15).encode(y=alt.Y("low:Q", title=title), y2=alt.Y2("high:Q"))
    points = base.mark_point(filled=True, size=46, opacity=1).encode(y=value, tooltip=hover(frame, title, ".2f"))
    even = alt.Chart(pd.DataFrame({"at": [1.0]})).mark_rule(style="reference").encode(y=alt.Y("at:Q", title=title))
    return layered(even, band, base.mark_line().encode(y=value), points, width=WIDTH)
