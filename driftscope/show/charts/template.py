"""Template: what is left when the prompt is wrapped otherwise."""

from __future__ import annotations

import altair as alt
import pandas as pd

from driftscope.show.charts.assembly import beside
from driftscope.show.charts.base import Chart, empty, hover, layered, resolved, run_colour, run_shape, signed
from driftscope.show.charts.theme import WIDTH

_PANELS = {
    "length_kept": ("length kept (100% = as usual)", 1.0, ".1%"),
    "growth_kept": ("growth (x, 1 = as usual)", 1.0, ".3f"),
    "excess_change": ("change of the excess", 0.0, "+.3f"),
}
"""Title, what no change is, and the number format on hover."""
_AXES = {"length_kept": alt.Axis(format="%", tickCount=4), "excess_change": signed("+.2~f", tickCount=4)}


def matrix(frame: pd.DataFrame) -> Chart:
    """`template` -> condition by condition the acceptance length kept, the growth of the carry and the change of the
    self-generated excess, against the regular template on the same prompts, with 95% intervals; runs side by side."""
    held = [name for name in _PANELS if (frame["quantity"] == name).any()]
    if not held:
        return empty("The template probe was not run.")
    runs = list(dict.fromkeys(frame["run"]))
    kept = frame[frame["quantity"] == held[0]].groupby("condition")["mean"].mean().sort_values()
    order = [*kept.index, *(name for name in dict.fromkeys(frame["condition"]) if name not in kept.index)]
    width = (WIDTH - 20 * (len(held) - 1)) // len(held)
    panels: list[alt.LayerChart] = []
    for name in held:
        title, null, form = _PANELS[name]
        rows = frame[frame["quantity"] == name].drop(columns="quantity")
        y = alt.Y(
            "condition:N",
            title=None,
            sort=order,
            scale=alt.Scale(domain=order),
            axis=alt.Axis(labelLimit=180, grid=True, labels=not panels, ticks=not panels),
        )
        base = alt.Chart(rows).encode(y=y, color=run_colour(runs))
        if len(runs) > 1:
            base = base.encode(yOffset=alt.YOffset("run:N", sort=runs))
        scale, axis = alt.Scale(zero=False, padding=8, nice=False), _AXES.get(name, alt.Axis(tickCount=4))
        x = alt.X("mean:Q", title=title, scale=scale, axis=axis)
        bars = base.mark_rule(strokeWidth=2).encode(
            x=alt.X("low:Q", title=title, scale=scale, axis=axis), x2=alt.X2("high:Q")
        )
        tip = [alt.Tooltip("condition:N"), *hover(rows, title, form)]
        dots = base.mark_point(filled=True, size=55, opacity=1).encode(x=x, shape=run_shape(runs), tooltip=tip)
        mark = alt.Chart(pd.DataFrame({"at": [null]})).mark_rule(style="reference").encode(x=alt.X("at:Q"))
        height = 13 * len(order) * max(len(runs), 2) + 12
        panels.append(layered(mark, bars, dots, width=width, height=height))
    return beside(*panels, spacing=20, resolve=resolved(color="shared", shape="shared"))
