"""Acceptance: joint and conditional, survival of chains, served lengths, confidence."""

from __future__ import annotations

import altair as alt
import pandas as pd

from driftscope.show.charts.base import Chart, empty, hover, layered, lines, run_colour, run_shape, step_axis
from driftscope.show.charts.sparse import sure, unsure
from driftscope.show.charts.theme import HEIGHT, WIDTH

_KINDS = {"conditional": "conditional: step k, where all before were accepted", "joint": "joint: steps 1 to k"}
_DASHES = ([1, 0], [5, 3])


def acceptance(figures: pd.DataFrame) -> Chart:
    """`step_figures` -> conditional (solid) and joint acceptance (dashed) with denominators on hover; a step that too few
    chains reach is a gap."""
    rows = figures[figures["quantity"].isin(_KINDS)]
    if rows.empty:
        return empty("Acceptance was not measured.")
    rows = rows.assign(label=rows["quantity"].map(_KINDS)).drop(columns="quantity")
    return _shares(rows, "share accepted", list(_KINDS.values()))


def survival(frame: pd.DataFrame) -> Chart:
    """`survival` -> share of chains with at least k accepted tokens: rounds that an engine serves (solid), and chains from
    every anchor (dashed)."""
    if frame.empty:
        return empty("Acceptance was not measured.")
    rows = frame.assign(label=frame["quantity"]).drop(columns="quantity")
    names = ["served rounds", "every anchor"]
    return _shares(rows, "share with at least k accepted", names, step_axis(rows["step"], "k (tokens)"))


def lengths(frame: pd.DataFrame) -> Chart:
    """`served_lengths` -> share of served rounds by accepted tokens, with 95% intervals."""
    if frame.empty:
        return empty("Not measured: the anchors of a prompt are not consecutive, or its text is not the target's.")
    runs = list(dict.fromkeys(frame["run"]))
    title = "share of served rounds"
    y = alt.Y("mean:Q", title=title, axis=alt.Axis(format="%"))
    base = alt.Chart(frame).encode(
        x=alt.X("length:O", title="drafted tokens accepted in a round", axis=alt.Axis(labelAngle=0))
    )
    if len(runs) > 1:
        base = base.encode(xOffset=alt.XOffset("run:N", sort=runs))
    extra = [alt.Tooltip("rounds:Q", title="rounds of this length", format=",d")]
    bars = base.mark_bar(opacity=0.85).encode(y=y, color=run_colour(runs), tooltip=hover(frame, title, ".1%") + extra)
    errors = base.mark_rule(style="interval").encode(y=alt.Y("low:Q", title=title), y2=alt.Y2("high:Q"))
    return layered(bars, errors, width=WIDTH, height=HEIGHT)


def confidence(frame: pd.DataFrame) -> Chart:
    """`confidence` -> mean probability of the drafter's own token (solid) and of the target's (dashed)."""
    if frame.empty:
        return empty("Probabilities were not recorded.")
    rows = frame.assign(label=frame["quantity"]).drop(columns="quantity")
    return _shares(rows, "mean probability by the drafter", list(dict.fromkeys(rows["label"])))


def sampling(frame: pd.DataFrame) -> Chart:
    """`sampling` -> expected share accepted under sampling, sum over tokens of min(p, q), text-fed."""
    if frame.empty:
        return empty("Sampling acceptance was not recorded.")
    runs = list(dict.fromkeys(frame["run"]))
    title = "sampling acceptance (0 to 1)"
    return lines(frame, title, run_colour(runs), shape=run_shape(runs), form=".3f", domain=[0.0, 1.0])


def _shares(rows: pd.DataFrame, title: str, names: list[str], x: alt.X | None = None) -> Chart:
    runs = list(dict.fromkeys(rows["run"]))
    held = [name for name in names if (rows["label"] == name).any()]
    dash = alt.StrokeDash(
        "label:N",
        scale=alt.Scale(domain=held, range=list(_DASHES)[: len(held)]),
        legend=alt.Legend(title=None, orient="top", symbolType="stroke", labelLimit=360),
        sort=held,
    )
    drawn = lines(
        sure(rows),
        title,
        run_colour(runs),
        detail="label",
        dash=dash,
        shape=run_shape(runs),
        form=".3f",
        domain=[0.0, 1.0],
        x=x,
    )
    y = alt.Y("mean:Q", title=title, scale=alt.Scale(domain=[0.0, 1.0], nice=False))
    few = unsure(rows, y, run_colour(runs), title, ".3f")
    return layered(drawn, *few, width=WIDTH, height=HEIGHT) if few else drawn
