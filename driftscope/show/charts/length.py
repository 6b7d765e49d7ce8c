"""Length: acceptance by the length of the text, under full attention and windows."""

from __future__ import annotations

import altair as alt
import pandas as pd

from driftscope.show.charts.base import Chart, empty, fixed_colour, hover, layered, linear_domain, per_run, reference
from driftscope.show.charts.theme import HEIGHT

POLICY_COLOURS = {"full": "#0072B2", "window": "#E69F00", "window+sink": "#009E73", "window+system": "#CC79A7"}
TITLES = {
    "anchor_mean": "accepted tokens a chain",
    "length_kept": "length kept (1 = as at the shortest)",
    "growth": "growth of the carry's RMS (x)",
    "excess": "excess on self-generated",
}
_FORMS = {"anchor_mean": ".2f", "length_kept": ".2f", "growth": ".2f", "excess": "+.3f"}


def by_length(frame: pd.DataFrame, quantity: str = "anchor_mean") -> Chart:
    """`length` -> a figure by length of the text in tokens, a line per attention policy, with 95% intervals; policies stand
    beside each other, as they often agree. `quantity` is anchor_mean, length_kept, growth or excess."""
    rows = frame[frame["quantity"] == quantity].drop(columns="quantity")
    if rows.empty:
        return empty("The length probe was not run.")
    lengths, policies = sorted(set(rows["length"])), [name for name in POLICY_COLOURS if (rows["policy"] == name).any()]
    colour = fixed_colour("policy", POLICY_COLOURS, list(rows["policy"]), title="attention")
    domain = linear_domain(rows, 0.0, 0.1)

    def draw(part: pd.DataFrame, width: int) -> alt.LayerChart:
        x = alt.X(
            "length:O",
            title="length of the text (tokens)",
            scale=alt.Scale(domain=lengths, paddingInner=0.6, paddingOuter=0.3),
            axis=alt.Axis(labelAngle=0),
        )
        scale = alt.Scale(domain=domain, nice=False)
        y = alt.Y("mean:Q", title=TITLES[quantity], scale=scale)
        base = alt.Chart(part).encode(x=x, xOffset=alt.XOffset("policy:N", sort=policies), color=colour)
        bars = base.mark_rule(strokeWidth=2, opacity=0.6).encode(
            y=alt.Y("low:Q", title=TITLES[quantity], scale=scale), y2=alt.Y2("high:Q")
        )
        line = base.mark_line(strokeWidth=2).encode(y=y)
        tip = [
            alt.Tooltip("policy:N", title="attention"),
            *hover(part.rename(columns={"length": "_"}), TITLES[quantity], _FORMS[quantity]),
        ]
        tip.insert(1, alt.Tooltip("length:Q", title="tokens", format=",d"))
        dots = base.mark_point(filled=True, size=55, opacity=1).encode(y=y, tooltip=tip)
        below = [reference(0.0)] if domain[0] < 0 else []
        return layered(*below, bars, line, dots, width=width, height=HEIGHT)

    return per_run(rows, draw)
