"""Compare: figures of several runs side by side, and differences with their intervals."""

from __future__ import annotations

from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from driftscope.show.charts.assembly import in_rows
from driftscope.show.charts.base import NEUTRAL, Chart, empty, layered, resolved, run_colour, run_shape, signed

_PANEL = 260
_SPACING = {"row": 70, "column": 110}
"""Between the frames of panels: room for an axis, a title and names."""
EFFECTS = {"fc_norm": "FC-norm", "carry": "post-norm", "interaction": "interaction", "difference": "difference"}


def values(frame: pd.DataFrame) -> Chart:
    """`Comparison.values_frame()` -> every figure on every run with its 95% interval, each on its own axis."""
    if frame.empty:
        return empty("There is nothing to compare.")
    runs = list(dict.fromkeys(frame["run"]))
    panels = []
    for label in dict.fromkeys(frame["label"]):
        rows = frame[frame["label"] == label]
        unit = str(rows["unit"].iloc[0])
        scale, axis = alt.Scale(zero=False, padding=10), alt.Axis(tickCount=4)
        base = alt.Chart(rows).encode(y=_names("run", runs), color=_colour(runs))
        on: dict[str, Any] = {"title": "factor (x)" if unit == "x" else unit or None, "scale": scale, "axis": axis}
        dots = base.mark_point(filled=True, size=60, opacity=1).encode(
            x=alt.X("mean:Q", **on),
            shape=run_shape(runs).legend(None),
            tooltip=[alt.Tooltip("run:N"), *_hover(rows, _with(label, unit))],
        )
        bars = _bars(base, rows, on)
        panels.append(layered(*bars, dots, width=_PANEL, height=16 * len(runs), title=label))
    return _panels(panels)


def differences(frame: pd.DataFrame) -> Chart:
    """`Comparison.differences_frame()` -> every figure's difference to the first run with its 95% interval; a filled point
    where the interval leaves out "no difference"."""
    if frame.empty:
        return empty("There is nothing to compare.")
    others = list(dict.fromkeys(frame["run"]))
    return _forest(frame, _colour([str(frame["reference"].iloc[0]), *others]), "run", others)


def effects(frame: pd.DataFrame) -> Chart:
    """`Comparison.effects_frame()` -> effects of FC-norm and post-norm (averaged over the other) and their interaction, per
    figure, with 95% intervals; a filled point where the interval leaves out "no effect"."""
    rows = frame[frame["given"] == ""]
    if rows.empty:
        return empty("The effects need the four checkpoints of FC-norm x post-norm.")
    rows = rows.assign(group=rows["effect"].map(EFFECTS))
    names = [name for name in EFFECTS.values() if (rows["group"] == name).any()]
    # Names stand at the axis, and colours are those of runs.
    return _forest(rows, alt.value(NEUTRAL), "group", names)


def _forest(rows: pd.DataFrame, colour: Any, group: str, groups: list[str]) -> Chart:
    """A panel per figure, around no difference (0) or, on a log scale, no factor (1)."""
    panels = []
    moved = "datum.direction == 'up' || datum.direction == 'down'"
    for label in dict.fromkeys(rows["label"]):
        part = rows[rows["label"] == label]
        null = float(part["null"].iloc[0])
        unit = str(part["unit"].iloc[0])
        title = "factor (x)" if null else _with("difference", unit)
        scale = _around(part[["mean", "low", "high"]].to_numpy(np.float64), null)
        axis = alt.Axis(tickCount=4, format=".2~g") if null else signed("+.2~g", tickCount=4)
        base = alt.Chart(part).encode(y=_names(group, groups), color=colour)
        on: dict[str, Any] = {"title": title, "scale": scale, "axis": axis}
        dots = base.mark_point(size=60, opacity=1, strokeWidth=2).encode(
            x=alt.X("mean:Q", **on),
            fill=alt.FillValue(**alt.condition(moved, colour, alt.value("transparent"))),
            tooltip=[alt.Tooltip(f"{group}:N"), *_hover(part, f"{label}, {title}")],
        )
        mark = alt.Chart(pd.DataFrame({"at": [null]})).mark_rule(style="reference").encode(x=alt.X("at:Q"))
        bars = _bars(base, part, on)
        panels.append(layered(mark, *bars, dots, title=label, width=_PANEL, height=18 * len(groups)))
    return _panels(panels)


def _panels(panels: list[alt.LayerChart]) -> Chart:
    return in_rows(*panels, columns=2, bounds="flush", spacing=_SPACING, resolve=resolved(color="shared"))


def _bars(base: alt.Chart, rows: pd.DataFrame, on: dict[str, Any]) -> list[alt.Chart]:
    """Intervals on the axis of the figures, where there are any."""
    if rows["low"].isna().all():
        return []
    return [base.mark_rule(strokeWidth=2).encode(x=alt.X("low:Q", **on), x2=alt.X2("high:Q"))]


def _with(text: str, unit: str) -> str:
    return f"{text} ({unit})" if unit else text


def _names(group: str, names: list[str]) -> alt.Y:
    axis = alt.Axis(labelLimit=100)
    return alt.Y(f"{group}:N", title=None, sort=names, scale=alt.Scale(domain=names), axis=axis)


def _colour(runs: list[str]) -> alt.Color:
    """Runs by colour without a legend: their names stand at the axis."""
    colour: alt.Color = run_colour(runs).legend(None)
    return colour


def _around(ends: np.ndarray[Any, np.dtype[np.float64]], null: float) -> alt.Scale:
    """An axis with the null in its middle that holds every figure and interval."""
    if null:
        reach = 1.1 * float(np.exp(np.nanmax(np.abs(np.log(np.maximum(ends, 1e-6))), initial=0.0)))
        return alt.Scale(type="log", domain=[1 / reach, reach], nice=False)
    reach = 1.1 * float(np.nanmax(np.abs(ends), initial=0.0)) or 0.1
    return alt.Scale(domain=[-reach, reach], nice=False)


def _hover(rows: pd.DataFrame, title: str) -> list[alt.Tooltip]:
    names = {"mean": title, "low": "95% from", "high": "95% to"}
    figures = [alt.Tooltip(f"{name}:Q", title=text, format=".3g") for name, text in names.items()]
    return [*figures, alt.Tooltip("prompts:Q", title="prompts", format=",d")] if "prompts" in rows else figures
