"""Noise: how much of the length is left at each level, and how far single steps are moved."""

from __future__ import annotations

import altair as alt
import pandas as pd

from driftscope.figures.noise import SITES
from driftscope.show.charts.base import (
    Chart,
    axis_at,
    empty,
    hover,
    layered,
    lines,
    per_run,
    reference,
    run_colour,
    run_shape,
)
from driftscope.show.charts.theme import HEIGHT, WIDTH

MOVED = {
    "kl": "KL from the undisturbed draft (nats)",
    "flips": "share of top tokens that change",
    "cos_carry": "cosine with the undisturbed carry",
}
_LEVEL_COLOURS = ("#56B4E9", "#009E73", "#E69F00", "#D55E00", "#CC79A7", "#0072B2")


def dose(frame: pd.DataFrame, halves: pd.DataFrame, quantity: str = "anchor_mean_kept") -> Chart:
    """`noise`, `half_points` -> share of the undisturbed acceptance length that is left by alpha, a panel per site, with 95%
    intervals; a cross where half is lost. `quantity` is anchor_mean_kept or served_kept."""
    rows = frame[frame["quantity"] == quantity]
    if rows.empty:
        return empty("The noise probe was not run, or nothing is accepted without noise.")
    runs = list(dict.fromkeys(rows["run"]))
    top = max(1.0, float(rows[["mean", "high"]].max().max())) * 1.06
    levels = sorted(set(rows["alpha"]))
    title = "length kept (100% = all)"

    def draw(part: pd.DataFrame, width: int) -> alt.LayerChart:
        x = alt.X(
            "alpha:Q",
            title="alpha (noise / RMS)",
            scale=alt.Scale(type="sqrt", domain=[0, max(levels) * 1.06], nice=False),
            axis=axis_at([0, *levels], grid=False, format="~g"),
        )
        y = alt.Y("mean:Q", title=title, scale=alt.Scale(domain=[0, top], nice=False), axis=alt.Axis(format="%"))
        # Without noise the length kept is 1 by definition.
        start = part.drop_duplicates("run").assign(alpha=0.0, mean=1.0, low=1.0, high=1.0)
        base = alt.Chart(pd.concat([start, part])).encode(x=x, color=run_colour(runs))
        band = base.mark_area(opacity=0.18).encode(y=alt.Y("low:Q", title=title), y2=alt.Y2("high:Q"))
        line = base.mark_line(strokeWidth=2).encode(y=y)
        dots = alt.Chart(part).mark_point(filled=True, size=46, opacity=1)
        tip = [alt.Tooltip("alpha:Q", title="alpha"), *hover(part.drop(columns=["step", "site"]), title, ".1%")]
        dots = dots.encode(x=x, y=y, color=run_colour(runs), shape=run_shape(runs), tooltip=tip)
        own = halves[(halves["quantity"] == quantity) & (halves["site"] == part["site"].iloc[0])].dropna(subset=["at"])
        own = own.assign(half=0.5)
        cross = alt.Chart(own).mark_point(shape="cross", size=130, angle=45, filled=True, opacity=1)
        cross = cross.encode(
            x=alt.X("at:Q"),
            y=alt.Y("half:Q"),
            color=run_colour(runs),
            tooltip=[alt.Tooltip("run:N"), alt.Tooltip("at:Q", title="half is lost at alpha", format=".3g")],
        )
        marks = [cross] if len(own) else []
        return layered(reference(0.5), band, line, dots, *marks, width=width, height=HEIGHT)

    return per_run(rows, draw, by="site", titles=SITES)


def moved(frame: pd.DataFrame, quantity: str = "kl") -> Chart:
    """`noise` -> KL, flips or cosine per step, text-fed, by alpha (colour), a panel per site; runs differ in their points."""
    rows = frame[(frame["quantity"] == quantity) & (frame["step"] > 0)]
    if rows.empty:
        return empty("The noise probe was not run.")
    levels = sorted(set(rows["alpha"]))
    runs = list(dict.fromkeys(rows["run"]))
    rows = rows.assign(line=rows["run"] + rows["alpha"].astype(str), label="alpha " + rows["alpha"].map("{:g}".format))
    names = [f"alpha {level:g}" for level in levels]
    colours = [_LEVEL_COLOURS[place % len(_LEVEL_COLOURS)] for place in range(len(names))]
    colour = alt.Color(
        "label:N",
        scale=alt.Scale(domain=names, range=colours),
        legend=alt.Legend(title=None, orient="top", symbolOpacity=1),
        sort=names,
    )

    def draw(part: pd.DataFrame, width: int) -> alt.LayerChart:
        return lines(
            part.drop(columns="quantity"),
            MOVED[quantity],
            colour,
            detail="line",
            shape=run_shape(runs, alone=True),
            width=width,
            ends=rows,
        )

    return per_run(rows, draw, by="site", titles=SITES, width=WIDTH)
