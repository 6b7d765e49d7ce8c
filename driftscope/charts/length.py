"""Length: acceptance by the length of the text, under full attention and windows."""

from __future__ import annotations

import altair as alt
import pandas as pd

from driftscope.charts.base import Chart, empty, fixed_colour, hover, layered, per_run
from driftscope.charts.theme import HEIGHT

POLICY_COLOURS = {"full": "#0072B2", "window": "#E69F00", "window+sink": "#009E73", "window+system": "#CC79A7"}
TITLES = {
    "anchor_mean": "accepted tokens a chain",
    "length_kept": "length kept (1 = as at the shortest)",
    "growth": "growth of the carry's RMS (x)",
    "excess": "excess on self-generated",
}


def by_length(frame: pd.DataFrame, quantity: str = "anchor_mean") -> Chart:
    """`length` -> a figure by length of the text in tokens (log scale), a line per attention policy, with 95% intervals;
    `quantity` is anchor_mean, length_kept, growth or excess."""
    rows = frame[frame["quantity"] == quantity].drop(columns="quantity")
    if rows.empty:
        return empty("The length probe was not run.")
    lengths = sorted(set(rows["length"]))
    colour = fixed_colour("policy", POLICY_COLOURS, list(rows["policy"]), title="attention")
    low = min(0.0, float(rows[["mean", "low"]].min().min()))
    domain = [low, max(float(rows[["mean", "high"]].max().max()) * 1.07, low + 0.1)]

    def draw(part: pd.DataFrame, width: int) -> alt.LayerChart:
        x = alt.X(
            "length:Q",
            title="length of the text (tokens)",
            scale=alt.Scale(type="log", base=2, domain=[lengths[0] / 1.1, lengths[-1] * 1.1], nice=False),
            axis=alt.Axis(values=lengths, format="d", grid=False),
        )
        scale = alt.Scale(domain=domain, nice=False)
        y = alt.Y("mean:Q", title=TITLES[quantity], scale=scale)
        base = alt.Chart(part).encode(x=x, color=colour)
        bars = base.mark_rule(strokeWidth=2, opacity=0.6).encode(
            y=alt.Y("low:Q", title=TITLES[quantity], scale=scale), y2="high:Q"
        )
        line = base.mark_line(strokeWidth=2).encode(y=y)
        tip = [
            alt.Tooltip("policy:N", title="attention"),
            *hover(part.rename(columns={"length": "_"}), TITLES[quantity]),
        ]
        tip.insert(1, alt.Tooltip("length:Q", title="tokens", format=",d"))
        dots = base.mark_point(filled=True, size=55, opacity=1).encode(y=y, tooltip=tip)
        return layered(bars, line, dots, width=width, height=HEIGHT)

    return per_run(rows, draw)
