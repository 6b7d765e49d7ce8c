"""Rules of verification: expected accepted tokens by sampling, a point for each rule; acceptance over the steps for the first."""

from __future__ import annotations

import altair as alt
import pandas as pd

from driftscope.show.charts.base import Chart, empty, hover, layered, per_run
from driftscope.show.charts.theme import RUN_COLOURS

_NAMES = {
    "greedy": "greedy",
    "exact_match": "exact match",
    "one_hot": "one-hot draft",
    "lossless": "lossless",
    "block": "block",
}
_LENGTH, _STEPS = "accepted tokens, texts sampled so", "acceptance by step"


def rules(frame: pd.DataFrame) -> Chart:
    """`rules` -> lengths by sampling (target/draft), and acceptance on sampled texts over the steps of the first sampling."""
    rows = frame.dropna(subset=["mean"])
    lengths = rows[rows["quantity"] == "length"].assign(panel=_LENGTH)
    first = rows["sampling"].iloc[0] if len(rows) else ""
    steps = rows[(rows["quantity"] == "acceptance, sampled") & (rows["sampling"] == first)]
    rows = pd.concat([lengths, steps.assign(panel=f"{_STEPS}, {first}")])
    if rows.empty:
        return empty("The rules probe was not run, or too few tokens were asked of it.")
    rows = rows.assign(rule=[_NAMES.get(rule, rule) for rule in rows["rule"]])
    names = [name for name in _NAMES.values() if name in set(rows["rule"])]
    scale = alt.Scale(domain=names, range=[RUN_COLOURS[place % len(RUN_COLOURS)] for place in range(len(names))])
    legend = alt.Legend(title=None, orient="top", columns=5, symbolOpacity=1)
    colour = alt.Color("rule:N", scale=scale, legend=legend)

    def draw(part: pd.DataFrame, width: int) -> alt.LayerChart:
        return _lengths(part, names, colour, width) if part["panel"].iloc[0] == _LENGTH else _steps(part, colour, width)

    return per_run(rows.drop(columns=["quantity"]), draw, by="panel", shared=False)


def _lengths(part: pd.DataFrame, names: list[str], colour: alt.Color, width: int) -> alt.LayerChart:
    part = part.drop(columns=["step"])
    order = list(dict.fromkeys(part["sampling"]))
    base = alt.Chart(part).encode(
        y=alt.Y("sampling:N", sort=order, title="temperature, target/draft"),
        yOffset=alt.YOffset("rule:N", sort=names),
        color=colour,
    )
    value = alt.X("mean:Q", title="accepted tokens a chain", scale=alt.Scale(zero=True))
    bars = base.mark_rule(strokeWidth=1.4).encode(
        x=alt.X("low:Q", title="accepted tokens a chain"), x2=alt.X2("high:Q")
    )
    points = base.mark_point(filled=True, size=36, opacity=1).encode(
        x=value, tooltip=hover(part, "accepted tokens a chain", ".3f")
    )
    return layered(bars, points, width=width, height=max(80, 9 * len(names) * len(order)))


def _steps(part: pd.DataFrame, colour: alt.Color, width: int) -> alt.LayerChart:
    part = part.assign(step=part["step"].astype(int)).sort_values(["rule", "step"])
    base = alt.Chart(part).encode(
        x=alt.X("step:Q", title="step", axis=alt.Axis(format="d", tickMinStep=1)), color=colour
    )
    title = "share accepted"
    band = base.mark_area(opacity=0.12).encode(y=alt.Y("low:Q", title=title), y2=alt.Y2("high:Q"))
    value = alt.Y("mean:Q", title=title, scale=alt.Scale(zero=False))
    points = base.mark_point(filled=True, size=36, opacity=1).encode(y=value, tooltip=hover(part, title, ".3f"))
    return layered(band, base.mark_line().encode(y=value), points, width=width)
