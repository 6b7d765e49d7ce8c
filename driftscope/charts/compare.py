"""Compare: figures of several runs side by side, and differences with their intervals."""

from __future__ import annotations

from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from driftscope.charts.base import Chart, empty, layered, resolved, run_colour, run_shape

_PANEL = 240
EFFECTS = {"fc_norm": "FC-norm", "carry": "post-norm", "interaction": "interaction", "difference": "difference"}
EFFECT_COLOURS = {"FC-norm": "#0072B2", "post-norm": "#D55E00", "interaction": "#999999", "difference": "#0072B2"}


def values(frame: pd.DataFrame) -> Chart:
    """`Comparison.values_frame()` -> every figure on every run with its 95% interval, each on its own axis."""
    if frame.empty:
        return empty("There is nothing to compare.")
    runs = list(dict.fromkeys(frame["run"]))
    panels = []
    for label in dict.fromkeys(frame["label"]):
        rows = frame[frame["label"] == label]
        unit = str(rows["unit"].iloc[0])
        title = f"{label} ({unit})" if unit else label
        base = alt.Chart(rows).encode(
            y=alt.Y("run:N", title=None, sort=runs, scale=alt.Scale(domain=runs), axis=alt.Axis(labelLimit=140)),
            color=run_colour(runs),
        )
        scale = alt.Scale(zero=False, padding=10)
        x = alt.X("mean:Q", title=None, scale=scale, axis=alt.Axis(tickCount=4))
        bars = base.mark_rule(strokeWidth=2).encode(x=alt.X("low:Q", title=None, scale=scale), x2="high:Q")
        dots = base.mark_point(filled=True, size=60, opacity=1).encode(
            x=x, shape=run_shape(runs), tooltip=[alt.Tooltip("run:N"), *_hover(title)]
        )
        panels.append(layered(bars, dots, width=_PANEL, height=16 * len(runs), title=title))
    return alt.concat(*panels, columns=2, spacing=24, resolve=resolved(color="shared", shape="shared"))


def differences(frame: pd.DataFrame) -> Chart:
    """`Comparison.differences_frame()` -> every figure's difference to the first run with its 95% interval; a filled point
    where the interval leaves out "no difference"."""
    if frame.empty:
        return empty("There is nothing to compare.")
    rows = frame
    others = list(dict.fromkeys(rows["run"]))
    return _forest(rows, run_colour([str(rows["reference"].iloc[0]), *others]), "run", others)


def effects(frame: pd.DataFrame) -> Chart:
    """`Comparison.effects_frame()` -> effects of FC-norm and post-norm (averaged over the other) and their interaction, per
    figure, with 95% intervals; a filled point where the interval leaves out "no effect"."""
    rows = frame[frame["given"] == ""]
    if rows.empty:
        return empty("The effects need the four checkpoints of FC-norm x post-norm.")
    rows = rows.assign(group=rows["effect"].map(EFFECTS))
    names = [name for name in EFFECTS.values() if (rows["group"] == name).any()]
    colour = alt.Color(
        "group:N",
        scale=alt.Scale(domain=names, range=[EFFECT_COLOURS[name] for name in names]),
        legend=alt.Legend(title="effect of", orient="top", symbolOpacity=1),
        sort=names,
    )
    return _forest(rows, colour, "group", names)


def _forest(rows: pd.DataFrame, colour: alt.Color, group: str, groups: list[str]) -> Chart:
    """A panel per figure, around no difference (0) or, on a log scale, no factor (1)."""
    panels = []
    moved = "datum.direction == 'up' || datum.direction == 'down'"
    for label in dict.fromkeys(rows["label"]):
        part = rows[rows["label"] == label]
        null = float(part["null"].iloc[0])
        title = f"{label}, {'factor' if null else 'difference'}"
        scale = _around(part[["mean", "low", "high"]].to_numpy(np.float64), null)
        axis = alt.Axis(tickCount=4, format=".2~g" if null else "+.2~g")
        y = alt.Y(f"{group}:N", title=None, sort=groups, scale=alt.Scale(domain=groups), axis=alt.Axis(labelLimit=140))
        base = alt.Chart(part).encode(y=y, color=colour)
        bars = base.mark_rule(strokeWidth=2).encode(x=alt.X("low:Q", title=None, scale=scale), x2="high:Q")
        dots = base.mark_point(size=60, opacity=1, strokeWidth=2).encode(
            x=alt.X("mean:Q", title=None, scale=scale, axis=axis),
            fill=alt.condition(moved, colour, alt.value("transparent")),
            tooltip=[alt.Tooltip(f"{group}:N"), *_hover(title)],
        )
        mark = alt.Chart(pd.DataFrame({"at": [null]})).mark_rule(style="reference").encode(x="at:Q")
        panels.append(layered(mark, bars, dots, title=title, width=_PANEL, height=18 * len(groups)))
    return alt.concat(*panels, columns=2, spacing=24, resolve=resolved(color="shared"))


def _around(ends: np.ndarray[Any, np.dtype[np.float64]], null: float) -> alt.Scale:
    """An axis with the null in its middle that holds every figure and interval."""
    if null:
        reach = 1.1 * float(np.exp(np.nanmax(np.abs(np.log(np.maximum(ends, 1e-6))), initial=0.0)))
        return alt.Scale(type="log", domain=[1 / reach, reach], nice=False)
    reach = 1.1 * float(np.nanmax(np.abs(ends), initial=0.0)) or 0.1
    return alt.Scale(domain=[-reach, reach], nice=False)


def _hover(title: str) -> list[alt.Tooltip]:
    names = {"mean": title, "low": "95% from", "high": "95% to"}
    return [alt.Tooltip(f"{name}:Q", title=text, format=".3g") for name, text in names.items()]
