"""Jumps: at which site growth arises, apart for the crossing from prefill to draft and for the steps behind it."""

from __future__ import annotations

import altair as alt
import pandas as pd

from driftscope.show.charts.assembly import beside
from driftscope.show.charts.base import Chart, empty, hover, layered, log_scale, resolved, run_colour, run_shape
from driftscope.show.charts.theme import WIDTH

PANELS = {"jump": "step 2 over step 1 (x)", "slope": "a step, from step 2 on (x)"}
_LEAST = 1.1
"""Both axes reach this far from 1 at least: what is smaller than the practical size must not fill them."""


def jumps(frame: pd.DataFrame) -> Chart:
    """`site_jumps` -> per site, in the order of computation, the factor at the first step that real features do not feed and
    the factor per step behind it, with 95% intervals; log scale, 1 is no change."""
    held = [name for name in PANELS if (frame["quantity"] == name).any()]
    if not held:
        return empty("Norms by site were not recorded, or the chain has a single step.")
    order, runs = list(dict.fromkeys(frame["site"])), list(dict.fromkeys(frame["run"]))
    width = (WIDTH - 20 * (len(held) - 1)) // len(held)
    height = 20 * len(order) * max(1.0, 0.5 * len(runs))
    panels: list[alt.LayerChart] = []
    for name in held:
        rows = frame[frame["quantity"] == name].drop(columns="quantity")
        scale, axis = log_scale(rows, _LEAST, 1 / _LEAST)
        y = alt.Y(
            "site:N",
            title=None,
            sort=order,
            scale=alt.Scale(domain=order),
            axis=alt.Axis(labelLimit=180, labels=not panels, ticks=not panels, grid=True),
        )
        base = alt.Chart(rows).encode(y=y, color=run_colour(runs))
        if len(runs) > 1:
            base = base.encode(yOffset=alt.YOffset("run:N", sort=runs))
        title = PANELS[name]
        bars = base.mark_rule(strokeWidth=2).encode(
            x=alt.X("low:Q", title=title, scale=scale, axis=axis), x2=alt.X2("high:Q")
        )
        dots = base.mark_point(filled=True, size=55, opacity=1).encode(
            x=alt.X("mean:Q", title=title, scale=scale, axis=axis),
            shape=run_shape(runs),
            tooltip=hover(rows, title, ".3f"),
        )
        mark = alt.Chart(pd.DataFrame({"at": [1.0]})).mark_rule(style="reference").encode(x=alt.X("at:Q"))
        panels.append(layered(mark, bars, dots, width=width, height=height))
    return beside(*panels, spacing=20, resolve=resolved(color="shared", shape="shared"))
