"""What every chart is built from: lines with bands over steps, marked onsets, one panel per run."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal

import altair as alt
import numpy as np
import pandas as pd

from driftscope.findings.words import spread_text
from driftscope.show.charts.assembly import beside, in_rows
from driftscope.show.charts.assembly import layered as layered
from driftscope.show.charts.theme import HEIGHT, RUN_COLOURS, WIDTH

Chart = alt.Chart | alt.LayerChart | alt.HConcatChart | alt.VConcatChart | alt.FacetChart | alt.ConcatChart

GAPS: Final = "break-paths-show-domains"
"""Vega-Lite's handling of nulls: the line breaks, the axis still shows the place."""
NEUTRAL = "#888888"
"""Of marks and legend symbols whose colour means nothing: readable in both looks."""
_SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down")
_PANEL = 330
_LEAST_REACH = 1.25
"""A log axis reaches at least by this factor from its middle to both sides: a tenth more must not look like a cliff."""
MOST_LABELS = 12


def step_axis(steps: Sequence[int], title: str | None = "step") -> alt.X:
    """Whole steps."""
    values = sorted({int(step) for step in steps})
    axis = axis_at(values, format="d", grid=False, labelOverlap=len(values) > MOST_LABELS)
    return alt.X("step:Q", axis=axis, title=title, scale=alt.Scale(nice=False, zero=False, padding=14))


def axis_at(values: Sequence[float], **settings: Any) -> alt.Axis:
    """An axis with ticks at these values. Without a count of its own, Vega leaves out every other one on a narrow axis."""
    return alt.Axis(values=list(values), tickCount=len(values), **settings)


def lines(
    frame: pd.DataFrame,
    y: str,
    colour: alt.Color,
    *,
    log: bool = False,
    form: str = ".4~g",
    detail: str | None = None,
    dash: alt.StrokeDash | None = None,
    shape: alt.Shape | None = None,
    domain: Sequence[float] | None = None,
    ends: pd.DataFrame | None = None,
    also: Sequence[float] = (),
    x: alt.X | None = None,
    weight: float = 1.0,
    width: int = WIDTH,
    height: int = HEIGHT,
) -> alt.LayerChart:
    """Means over `step` as lines with points, 95% intervals as bands, gaps where not measured.

    `y` is the title with its unit; `detail` names the column that tells lines of one colour apart. Without a `domain` the
    axis holds every figure and interval of `ends`, by default of `frame`, and `also`. `weight` makes lines and points thicker.
    """
    held = frame if ends is None else ends
    scale, axis = log_scale(held, *also) if log else linear_scale(held, *also)
    if domain is not None:
        scale = alt.Scale(domain=list(domain), nice=False)
    base = alt.Chart(frame).encode(x=x or step_axis(frame["step"]), color=colour)
    if detail is not None:
        base = base.encode(detail=alt.Detail(f"{detail}:N"))
    value = alt.Y("mean:Q", title=y, scale=scale, axis=axis)
    low = alt.Y("low:Q", title=y, scale=scale, axis=axis)
    band = base.mark_area(opacity=0.18, invalid=GAPS, strokeWidth=0).encode(y=low, y2=alt.Y2("high:Q"))
    line = base.mark_line(strokeWidth=2 * weight, invalid=GAPS).encode(y=value)
    points = base.mark_point(size=42 * weight, filled=True, opacity=1, invalid="filter").encode(
        y=value, tooltip=hover(frame, y, form)
    )
    if dash is not None:
        line = line.encode(strokeDash=dash)
    if shape is not None:
        points = points.encode(shape=shape)
    return layered(band, line, points, width=width, height=height)


def log_scale(frame: pd.DataFrame, *also: float) -> tuple[alt.Scale, alt.Axis]:
    """A log axis that holds every figure, interval and value of `also`, with few labels."""
    low, high = _ends(frame, also, positive=True)
    middle, reach = math.sqrt(low * high), max(math.sqrt(high / low), _LEAST_REACH) ** 1.08
    domain = [middle / reach, middle * reach]
    axis = axis_at(_log_ticks(*domain), format=".3~r")
    return alt.Scale(type="log", nice=False, domain=domain), axis


def linear_scale(frame: pd.DataFrame, *also: float) -> tuple[alt.Scale, alt.Axis]:
    """A linear axis that holds every figure, interval and value of `also`."""
    return alt.Scale(domain=linear_domain(frame, *also), nice=False, zero=False), alt.Axis(tickCount=6)


def linear_domain(frame: pd.DataFrame, *also: float) -> list[float]:
    """The ends of that axis. An end at 0 stays there."""
    low, high = _ends(frame, also)
    margin = 0.07 * max(high - low, 0.02)
    return [low - margin if low != 0 else 0.0, high + margin if high != 0 else 0.0]


def hover(frame: pd.DataFrame, title: str, form: str = ".4~g") -> list[alt.Tooltip]:
    """Axes, the figure with its interval, and its denominator."""
    named = {
        "run": "run",
        "where": "at",
        "step": "step",
        "label": "of",
        "site": "site",
        "region": "positions",
        "feature": "aux feature",
        "boundary": "target boundary",
        "layer": "layer",
        "head": "head",
        "length": "accepted tokens",
    }
    left_out = "step" if "where" in frame else ""
    axes = [alt.Tooltip(f"{name}:N", title=text) for name, text in named.items() if name in frame and name != left_out]
    figures = [
        alt.Tooltip("mean:Q", title=title, format=form),
        alt.Tooltip("low:Q", title="95% from", format=form),
        alt.Tooltip("high:Q", title="95% to", format=form),
    ]
    if not frame[["low", "high"]].notna().any().all():
        figures = figures[:1]
    counts = {"count:Q": ("denominator", ",d"), "counted:N": ("counts", None), "prompts:Q": ("prompts", ",d")}
    held = {name: text for name, text in counts.items() if name.split(":")[0] in frame}
    return [*axes, *figures, *(_count(name, *text) for name, text in held.items())]


def onset_marks(
    onsets: pd.DataFrame | None, keys: Sequence[str], last_step: int, *, runs: bool = False
) -> list[alt.Chart]:
    """A rule with its label at every onset of `keys`; `runs` names the run as well. Onsets at one step share a rule."""
    if onsets is None:
        return []
    marked = onsets[onsets["key"].isin(keys)]
    if marked.empty:
        return []
    spread = marked.apply(_spread, axis=1)
    texts = marked["name"] + " from step " + marked["step"].astype(str) + spread
    if runs:
        texts = marked["run"] + ": " + marked["name"] + spread
    grouped = texts.groupby(marked["step"]).agg("\n".join).rename("text").reset_index()
    marks = [alt.Chart(grouped).mark_rule(style="onset-rule").encode(x=alt.X("step:Q"))]
    down = 3
    for step, text in zip(grouped["step"], grouped["text"], strict=True):
        # A label stands on the side of its rule that has more room, below the labels before it.
        late = step > last_step / 2 + 1
        mark = alt.Chart(pd.DataFrame({"step": [step], "text": [text]})).mark_text(
            style="onset-label",
            align="right" if late else "left",
            baseline="top",
            dx=-4 if late else 4,
            dy=down,
            lineBreak="\n",
        )
        marks.append(mark.encode(x=alt.X("step:Q"), y=alt.YValue(0), text=alt.Text("text:N")))
        down += 14 * (text.count("\n") + 1)
    return marks


def _spread(mark: pd.Series) -> str:
    """` (2 to 5)` where resampled prompts do not agree on the step; without ends, nothing is known."""
    low, high = (None if pd.isna(mark.get(end)) else int(mark[end]) for end in ("low", "high"))
    return spread_text(low, high, int(mark["step"]))


def signed(form: str, **settings: Any) -> alt.Axis:
    """An axis of differences: a sign at every label but 0."""
    return alt.Axis(labelExpr=f"datum.value === 0 ? '0' : format(datum.value, '{form}')", **settings)


def reference(value: float) -> alt.Chart:
    """A dotted line across at `value`."""
    return alt.Chart(pd.DataFrame({"reference": [value]})).mark_rule(style="reference").encode(y=alt.Y("reference:Q"))


def run_colour(runs: Sequence[str]) -> alt.Color:
    """Runs by colour; no legend for a single one."""
    names = list(dict.fromkeys(runs))
    colours = [RUN_COLOURS[place % len(RUN_COLOURS)] for place in range(len(names))]
    legend = alt.Legend(title=None, orient="top", symbolOpacity=1) if len(names) > 1 else None
    return alt.Color("run:N", scale=alt.Scale(domain=names, range=colours), legend=legend, sort=names)


def run_shape(runs: Sequence[str], *, alone: bool = False) -> alt.Shape:
    """Runs by the shape of their points, so that colour is not the only difference; `alone` where colour means something
    else."""
    names = list(dict.fromkeys(runs))
    shapes = [_SHAPES[place % len(_SHAPES)] for place in range(len(names))]
    grey: Any = NEUTRAL if alone else alt.Undefined
    legend = alt.Legend(title=None, orient="top", symbolOpacity=1, symbolFillColor=grey) if len(names) > 1 else None
    return alt.Shape("run:N", scale=alt.Scale(domain=names, range=shapes), legend=legend)


def fixed_colour(
    column: str, colours: Mapping[str, str], present: Sequence[str], title: str | None = None, columns: int = 7
) -> alt.Color:
    """Categories in colours that do not depend on which of them occur."""
    held = set(present)
    names = [name for name in colours if name in held]
    return alt.Color(
        f"{column}:N",
        scale=alt.Scale(domain=names, range=[colours[name] for name in names]),
        legend=alt.Legend(title=title, orient="top", columns=columns, symbolOpacity=1),
        sort=names,
    )


def per_run(
    frame: pd.DataFrame,
    draw: Callable[[pd.DataFrame, int], Any],
    *,
    by: str = "run",
    titles: Mapping[str, str] | None = None,
    width: int = WIDTH,
    most: int = 2,
    shared: bool = True,
) -> Chart:
    """One panel per run (or other value of `by`), side by side, `most` in a row, with the same vertical scale if `shared`;
    `draw` gets the rows of a panel and its width."""
    names = list(dict.fromkeys(frame[by]))
    titles = titles or {}
    if len(names) == 1 and by == "run":
        return draw(frame, width)
    across = min(len(names), most)
    panel = width if across == 1 else _PANEL
    charts = [draw(frame[frame[by] == name], panel) for name in names]
    for name, chart in zip(names, charts, strict=True):
        chart.title = titles.get(name, name)
    resolve = resolved(y="shared" if shared else "independent", color="shared")
    if len(charts) <= across:
        return beside(*charts, resolve=resolve)
    return in_rows(*charts, columns=across, resolve=resolve)


def resolved(**channels: Literal["shared", "independent"]) -> alt.Resolve:
    """Which scales panels share. Given to a chart when it is made: altering one afterwards copies all of it."""
    return alt.Resolve(scale=alt.ScaleResolveMap(**channels))


def empty(text: str) -> alt.Chart:
    """A chart that says why there is nothing to draw."""
    mark = alt.Chart(pd.DataFrame({"text": [text]})).mark_text(style="note", align="left")
    return mark.encode(text=alt.Text("text:N"), x=alt.XValue(0), y=alt.YValue(12)).properties(width=WIDTH, height=24)


def _count(name: str, title: str, form: str | None) -> alt.Tooltip:
    return alt.Tooltip(name, title=title) if form is None else alt.Tooltip(name, title=title, format=form)


def _ends(frame: pd.DataFrame, also: Sequence[float], *, positive: bool = False) -> tuple[float, float]:
    values = frame[["mean", "low", "high"]].to_numpy(np.float64).ravel()
    values = np.concatenate([values[np.isfinite(values)], also])
    values = values[values > 0] if positive else values
    return (float(values.min()), float(values.max())) if len(values) else (0.5, 1.0)


def _log_ticks(low: float, high: float) -> list[float]:
    """Between 3 and about 8 round values."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks: list[float] = []
    for digits in ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 5, 7)):
        values = (digit * 10.0**power for power in powers for digit in digits)
        ticks = [float(f"{value:.3g}") for value in values if low <= value <= high]
        if len(ticks) >= 4:
            return ticks
    step = 10.0 ** math.floor(math.log10(high - low))
    step = next(part for part in (step, step / 2, step / 5, step / 10) if (high - low) / part >= 3)
    return [float(f"{step * place:.6g}") for place in range(math.ceil(low / step), math.floor(high / step) + 1)]
