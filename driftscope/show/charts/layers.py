"""Layers: which boundary of the target a step looks like, and at which row."""

from __future__ import annotations

import altair as alt
import pandas as pd

from driftscope.show.charts.base import Chart, empty, hover, lines, per_run
from driftscope.show.charts.theme import HEIGHT, WIDTH

ROWS = {
    "next": "the next position (row t+k)",
    "same": "the same row (t+k-1)",
    "anchor": "the anchor's row (t)",
}
_COLOURS = {"next": "#0072B2", "same": "#D55E00", "anchor": "#009E73"}
TITLES = {"cka": "likeness (linear CKA, 0 to 1)", "cos": "cosine"}


def likeness(frame: pd.DataFrame, quantity: str = "cka") -> Chart:
    """`layers` -> step x boundary for each row of the target: beside each other, below each other for several runs;
    `quantity` is cka or cos."""
    rows = frame[frame["quantity"] == quantity].dropna(subset=["mean"])
    if rows.empty:
        return empty("The layers probe was not run.")
    top = 1.0 if quantity == "cka" else float(rows["mean"].abs().max())
    scale = (
        alt.Scale(scheme="viridis", domain=[0, 1])
        if quantity == "cka"
        else alt.Scale(scheme="blueorange", domain=[-top, top])
    )
    legend = alt.Legend(title=quantity.upper() if quantity == "cka" else "cosine", gradientLength=110, format=".1f")
    steps = sorted(set(rows["step"]))
    beside = rows["run"].nunique() == 1

    def draw(part: pd.DataFrame, width: int) -> Chart:
        held = [name for name in ROWS if (part["row"] == name).any()]
        panels = [
            alt.Chart(part[part["row"] == name], title=ROWS[name])
            .mark_rect()
            .encode(
                x=alt.X("boundary:O", title="target boundary", axis=alt.Axis(labelAngle=0, labelOverlap=True)),
                y=alt.Y("step:O", title="step", scale=alt.Scale(domain=steps)),
                color=alt.Color("mean:Q", scale=scale, legend=legend),
                tooltip=hover(part, TITLES[quantity], ".3f"),
            )
            .properties(width=width // len(held) if beside else width, height=(18 if beside else 12) * len(steps))
            for name in held
        ]
        return alt.hconcat(*panels, spacing=14) if beside else alt.vconcat(*panels, spacing=8)

    return per_run(rows.drop(columns="quantity"), draw, shared=False)


def best(frame: pd.DataFrame) -> Chart:
    """`layers` -> per step and row of the target, the highest CKA over the boundaries."""
    rows = frame[frame["quantity"] == "cka"].dropna(subset=["mean"])
    if rows.empty:
        return empty("The layers probe was not run.")
    rows = rows.loc[rows.groupby(["run", "step", "row"])["mean"].idxmax()]
    rows = rows.assign(label=rows["row"].map(ROWS)).drop(columns="quantity")
    names = [ROWS[name] for name in ROWS if (rows["row"] == name).any()]
    colour = alt.Color(
        "label:N",
        scale=alt.Scale(domain=names, range=[_COLOURS[name] for name in ROWS if ROWS[name] in names]),
        legend=alt.Legend(title="most alike boundary at", orient="top", symbolOpacity=1, columns=3),
        sort=names,
    )

    def draw(part: pd.DataFrame, width: int) -> alt.LayerChart:
        return lines(part, TITLES["cka"], colour, domain=[0.0, 1.0], form=".3f", width=width, height=HEIGHT)

    return per_run(rows, draw, width=WIDTH)
