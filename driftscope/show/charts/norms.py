"""Norms: growth of the carry, target boundaries, aux features, sites."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from driftscope.show.charts.assembly import beside
from driftscope.show.charts.base import (
    MOST_LABELS,
    NEUTRAL,
    Chart,
    axis_at,
    empty,
    fixed_colour,
    hover,
    layered,
    lines,
    log_scale,
    onset_marks,
    per_run,
    reference,
    resolved,
    run_colour,
    run_shape,
)
from driftscope.show.charts.theme import HEIGHT, REGION_COLOURS, RUN_COLOURS, WIDTH
from driftscope.show.frames.norms import SITE_MODES, SiteMode, Unit
from driftscope.show.words import UNIT_NAMES

_BESIDE = "#a4acb6"
"""Of a broad line behind another."""
_GROWTH = "growth of the carry's RMS (x)"
_RIGHT: dict[str, Any] = {"align": "left", "dx": 3}
_LEFT: dict[str, Any] = {"align": "right", "dx": -3}
"""Of a label, seen from its rule."""
_GROWTHS = {"growth": "over step 1", "matched_growth": "over the same position without drafting"}


def growth(figures: pd.DataFrame, onsets: pd.DataFrame | None = None, *, height: int = HEIGHT) -> Chart:
    """`step_figures` -> RMS of the carry over step 1's, and over the same position without drafting; log scale. The second
    is dashed, and of a single run a broad grey line, as the two often coincide."""
    rows = figures[figures["quantity"].isin(_GROWTHS)]
    if rows.empty:
        return empty("The norm of the carry was not recorded.")
    rows = rows.assign(label=rows["quantity"].map(_GROWTHS))
    runs = list(dict.fromkeys(rows["run"]))
    marks = onset_marks(onsets, ["norm_up"], rows["step"].max(), runs=len(runs) > 1)
    drawn = [_one_growth(rows, height)] if len(runs) == 1 else [_growths(rows, runs, height)]
    return layered(reference(1.0), *drawn, *marks, width=WIDTH, height=height)


def _one_growth(rows: pd.DataFrame, height: int) -> alt.LayerChart:
    tints = dict(zip(_GROWTHS.values(), (RUN_COLOURS[0], _BESIDE), strict=True))
    colour = fixed_colour("label", tints, list(rows["label"]))
    parts = [(rows[rows["quantity"] == name], weight) for name, weight in (("matched_growth", 2.5), ("growth", 1.0))]
    return layered(
        *(
            lines(part, _GROWTH, colour, log=True, ends=rows, also=(1.0,), weight=weight, height=height)
            for part, weight in parts
            if len(part)
        )
    )


def _growths(rows: pd.DataFrame, runs: list[str], height: int) -> alt.LayerChart:
    names = [name for name in _GROWTHS.values() if (rows["label"] == name).any()]
    dash = alt.StrokeDash(
        "label:N",
        scale=alt.Scale(domain=names, range=[[1, 0], [5, 3]][: len(names)]),
        legend=alt.Legend(title=None, orient="top", symbolType="stroke"),
        sort=names,
    )
    colour, shape = run_colour(runs), run_shape(runs)
    return lines(rows, _GROWTH, colour, log=True, detail="label", dash=dash, shape=shape, also=(1.0,), height=height)


def carry(sites: pd.DataFrame, unit: Unit = "rms") -> Chart:
    """`carry_norms`, or `site_norms` as it is -> norm of the carried state per step, behind that of the last prefill rows; log
    scale. A rule marks where a step first starts from the drafter's own state."""
    rows = sites[sites["site"] == "carry"]
    if rows.empty:
        return empty("The norm of the carry was not recorded.")
    title = f"{UNIT_NAMES[unit]} of the carry"
    runs = list(dict.fromkeys(rows["run"]))
    if rows["step"].min() > 0:
        return lines(rows, title, run_colour(runs), log=True, shape=run_shape(runs))
    values = sorted(set(rows["step"]))
    where = "datum.value < 1 ? 't' + (datum.value - 1) : datum.value"
    axis = axis_at(values, labelExpr=where, grid=False, labelOverlap=len(values) > MOST_LABELS)
    scale = alt.Scale(nice=False, zero=False, padding=14)
    x = alt.X("step:Q", axis=axis, scale=scale, title="last prefill rows, then steps (step 1 is row t)")
    drawn = lines(rows, title, run_colour(runs), log=True, shape=run_shape(runs), x=x)
    rule = alt.Chart(pd.DataFrame({"step": [1.5], "text": ["drafting"]}))
    label = rule.mark_text(style="onset-label", align="left", baseline="top", dx=4, dy=3)
    marks = rule.mark_rule(style="onset-rule"), label.encode(y=alt.YValue(0), text=alt.Text("text:N"))
    return layered(drawn, *(mark.encode(x=alt.X("step:Q")) for mark in marks), width=WIDTH, height=HEIGHT)


def boundaries(layers: pd.DataFrame, unit: Unit = "rms") -> Chart:
    """`layer_norms` -> norm of the target's residual stream by boundary, sink positions apart; log scale. Rules mark the
    boundaries that the drafter reads."""
    if layers.empty:
        return empty("The target's norms were not recorded.")
    scale, axis = log_scale(layers)
    regions = list(dict.fromkeys(layers["region"]))

    def draw(rows: pd.DataFrame, width: int) -> alt.LayerChart:
        title = f"{UNIT_NAMES[unit]} of the residual stream"
        colour = fixed_colour("region", REGION_COLOURS, regions)
        x = alt.X("boundary:Q", title="target boundary (0 = embeddings)", axis=alt.Axis(format="d", tickMinStep=1))
        base = alt.Chart(rows).encode(x=x, color=colour)
        y = alt.Y("mean:Q", title=title, scale=scale, axis=axis)
        band = base.mark_area(opacity=0.18).encode(
            y=alt.Y("low:Q", title=title, scale=scale, axis=axis), y2=alt.Y2("high:Q")
        )
        line = base.mark_line(strokeWidth=2).encode(y=y)
        points = base.mark_point(filled=True, size=26, opacity=1).encode(y=y, tooltip=hover(rows, title))
        read = pd.DataFrame({"boundary": sorted(set(rows.loc[rows["aux"], "boundary"]))})
        read["text"] = "read: " + read["boundary"].astype(str)
        rules = [alt.Chart(read).mark_rule(style="onset-rule").encode(x=alt.X("boundary:Q"))] if len(read) else []
        # A label stands on the side of its rule that has room.
        late = read["boundary"] > 0.8 * rows["boundary"].max()
        for part, side in ((read[~late], _RIGHT), (read[late], _LEFT)):
            if len(part):
                label = alt.Chart(part).mark_text(style="onset-label", baseline="bottom", dy=-3, **side)
                rules.append(label.encode(x="boundary:Q", y=alt.value(HEIGHT), text="text:N"))
        return layered(*rules, band, line, points, width=width, height=HEIGHT)

    return per_run(layers, draw)


def aux(features: pd.DataFrame, unit: Unit = "rms") -> Chart:
    """`aux_norms` -> per aux feature: its norm as the target gives it, after its own norm, and its share of the fused
    input, with 95% intervals; sink positions apart, hollow."""
    if features.empty:
        return empty("This drafter reads no aux features, or they were not recorded.")
    titles = {
        "raw": f"{UNIT_NAMES[unit]}, as the target gives it",
        "normed": f"{UNIT_NAMES[unit]}, after its own norm",
        "share": "share of the fused input",
    }
    panels = [name for name in titles if (features["quantity"] == name).any()]
    width = (WIDTH - 50 * (len(panels) - 1)) // len(panels)
    drawn = [_aux_panel(features[features["quantity"] == name], titles[name], name, width) for name in panels]
    return beside(*drawn, resolve=resolved(color="shared", shape="shared", opacity="shared"))


def _aux_panel(rows: pd.DataFrame, title: str, name: str, width: int) -> alt.LayerChart:
    runs = list(dict.fromkeys(rows["run"]))
    rows = rows.assign(positions=np.where(rows["region"] == "sink", "sink positions", "all others"))
    rows["place"] = rows["run"] + rows["positions"]
    order = [run + region for run in runs for region in ("all others", "sink positions")]
    scale, axis = (alt.Scale(domain=[0, 1]), alt.Axis(format="%", tickCount=5)) if name == "share" else log_scale(rows)
    y = alt.Y("mean:Q", title=title, scale=scale, axis=axis)
    base = alt.Chart(rows).encode(
        x=alt.X("boundary:O", title="target boundary", axis=alt.Axis(labelAngle=0, grid=False)),
        xOffset=alt.XOffset("place:N", sort=order),
        color=run_colour(runs),
    )
    bars = base.mark_rule(strokeWidth=2).encode(
        y=alt.Y("low:Q", title=title, scale=scale, axis=axis), y2=alt.Y2("high:Q")
    )
    shape = alt.Shape(
        "positions:N",
        scale=alt.Scale(domain=["all others", "sink positions"], range=["circle", "diamond"]),
        legend=alt.Legend(title=None, orient="top", symbolFillColor=NEUTRAL, symbolOpacity=1),
    )
    points = base.mark_point(size=70, filled=True, opacity=1)
    points = points.encode(y=y, shape=shape, tooltip=hover(rows, title, ".1%" if name == "share" else ".4~g"))
    return layered(bars, points, width=width, height=HEIGHT)


def sites(frame: pd.DataFrame, mode: SiteMode = "size", unit: Unit = "rms") -> Chart:
    """`site_norms` of that mode -> heat-map of site x step, colours on a log scale: sizes from dark to light, ratios
    around 1. Sites stand in the order in which they are computed; an empty cell was not measured."""
    if frame.empty:
        return empty("Norms by site were not recorded.")
    shown = frame.dropna(subset=["mean"])
    order = list(dict.fromkeys(frame["site"]))
    title = UNIT_NAMES[unit] if mode == "size" else f"RMS {SITE_MODES[mode]} (x)"
    lines_of_title = textwrap.wrap(title, 24)
    positive = shown.loc[shown["mean"] > 0, "mean"]
    if mode == "size":
        low, high = (float(positive.min()), float(positive.max())) if len(positive) else (0.1, 1.0)
        scale = alt.Scale(type="log", scheme="viridis", domain=[low, max(high, low * 1.01)])
        dark = f"datum.mean < {np.sqrt(low * high):.6g}"
    else:
        reach = max(float(np.exp(np.abs(np.log(positive)).max())) if len(positive) else 1.0, 1.5)
        scale = alt.Scale(type="log", scheme="blueorange", domain=[1 / reach, reach])
        dark = f"abs(log(datum.mean)) > {0.6 * np.log(reach):.6g}"

    def draw(rows: pd.DataFrame, width: int) -> alt.LayerChart:
        base = alt.Chart(rows).encode(
            x=alt.X("step:O", title="step", axis=alt.Axis(labelAngle=0)),
            y=alt.Y("site:N", title=None, sort=order, scale=alt.Scale(domain=order), axis=alt.Axis(labelLimit=180)),
        )
        legend = alt.Legend(title=lines_of_title, format=".2~r", tickCount=4, gradientLength=160)
        cells = base.mark_rect().encode(
            color=alt.Color("mean:Q", scale=scale, legend=legend), tooltip=hover(rows, title)
        )
        text = base.mark_text(fontSize=10).encode(
            text=alt.Text("mean:Q", format=".2~r"),
            color=alt.ColorValue(**alt.condition(dark, alt.value("#ffffff"), alt.value("#111111"))),
        )
        return layered(cells, text, width=width, height=22 * len(order))

    return per_run(shown, draw)


def cosines(frame: pd.DataFrame) -> Chart:
    """`cosines` -> cosine of the carry with the step before, and with the same position without drafting."""
    if frame.empty:
        return empty("Cosines of the carry were not recorded.")
    return _by_quantity(frame, "cosine of the carry", form=".3f")


def updates(frame: pd.DataFrame) -> Chart:
    """`update_ratios` -> RMS of each update over the residual that it is added to."""
    if frame.empty:
        return empty("Update ratios were not recorded.")
    return _by_quantity(frame, "RMS of update / RMS of residual")


def _by_quantity(frame: pd.DataFrame, title: str, form: str = ".4~g") -> Chart:
    """Lines by run (colour) and quantity (dash)."""
    rows = frame.assign(label=frame["quantity"])
    names: Sequence[str] = list(dict.fromkeys(rows["label"]))
    dashes = [[1, 0], [5, 3], [2, 2], [8, 3, 2, 3]]
    dash = alt.StrokeDash(
        "label:N",
        scale=alt.Scale(domain=names, range=[dashes[place % 4] for place in range(len(names))]),
        legend=alt.Legend(title=None, orient="top", symbolType="stroke", labelLimit=320),
        sort=names,
    )
    runs = list(dict.fromkeys(rows["run"]))
    return lines(
        rows.drop(columns="quantity"),
        title,
        run_colour(runs),
        detail="label",
        dash=dash,
        shape=run_shape(runs),
        form=form,
    )
