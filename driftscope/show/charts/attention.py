"""Attention: bucket masses, excess, per-key ratio, heads, entropy, displacement."""

from __future__ import annotations

import altair as alt
import pandas as pd

from driftscope.runs.schema import DISJOINT_BUCKETS
from driftscope.show.charts.base import (
    NEUTRAL,
    Chart,
    empty,
    fixed_colour,
    hover,
    layered,
    linear_domain,
    lines,
    onset_marks,
    per_run,
    reference,
    resolved,
    run_colour,
    run_shape,
    signed,
)
from driftscope.show.charts.theme import BUCKET_COLOURS, BUCKET_NAMES, HEIGHT, WIDTH
from driftscope.stats.drift import PRACTICAL_MASS

_NAMED_COLOURS = {BUCKET_NAMES[name]: colour for name, colour in BUCKET_COLOURS.items()}
_MAIN = ("sink", "prompt", "committed", "self_generated", "virtual")
"""Buckets that say where attention goes without splitting the drafter's own rows."""


def stacked(figures: pd.DataFrame) -> Chart:
    """`step_figures` -> the disjoint buckets of every step, stacked to 1."""
    rows = _of(figures, "mass", DISJOINT_BUCKETS).dropna(subset=["mean"])
    if rows.empty:
        return empty("Attention was not recorded.")
    order = {BUCKET_NAMES[name]: place for place, name in enumerate(DISJOINT_BUCKETS)}
    rows = rows.assign(order=rows["label"].map(order))
    colour = fixed_colour("label", _NAMED_COLOURS, list(rows["label"]))

    def draw(part: pd.DataFrame, width: int) -> alt.LayerChart:
        bars = (
            alt.Chart(part)
            .mark_bar(stroke=None)
            .encode(
                x=alt.X("step:O", title="step", axis=alt.Axis(labelAngle=0), scale=alt.Scale(paddingInner=0.12)),
                y=alt.Y("mean:Q", stack="zero", title="share of attention", scale=alt.Scale(domain=[0, 1])),
                color=colour,
                order=alt.Order("order:Q"),
                tooltip=hover(part, "share of attention", ".3f"),
            )
        )
        return layered(bars, width=width, height=HEIGHT)

    return per_run(rows, draw)


def masses(
    figures: pd.DataFrame, onsets: pd.DataFrame | None = None, *, split: bool = False, height: int = HEIGHT
) -> Chart:
    """`step_figures` or `head_masses` -> mass per bucket and step with intervals; `split` shows drafted and current
    instead of their sum, self-generated."""
    rows = _of(figures, "mass", DISJOINT_BUCKETS if split else _MAIN)
    return _bucket_lines(rows, onsets, "share of attention", ["sink_down"], zero=False, height=height)


def excess(
    figures: pd.DataFrame, onsets: pd.DataFrame | None = None, *, split: bool = False, height: int = HEIGHT
) -> Chart:
    """`step_figures` or `head_masses` -> mass beyond that of the same position without drafting, per bucket and step."""
    rows = _of(figures, "excess", DISJOINT_BUCKETS if split else _MAIN)
    return _bucket_lines(rows, onsets, "excess over no drafting", ["self_up", "displaced"], zero=True, height=height)


def displacement(figures: pd.DataFrame, onsets: pd.DataFrame | None = None) -> Chart:
    """`step_figures` -> share of a head's attention that moved, mean over heads."""
    rows = figures[figures["quantity"] == "displacement"]
    if rows.empty:
        return empty("Attention by head was not recorded.")
    runs = list(dict.fromkeys(rows["run"]))
    drawn = lines(
        rows,
        "displacement (0 to 1)",
        run_colour(runs),
        shape=run_shape(runs),
        form=".3f",
        domain=linear_domain(rows, 0.0, 1.2 * PRACTICAL_MASS),
    )
    marks = onset_marks(onsets, ["displaced"], rows["step"].max(), runs=len(runs) > 1)
    return layered(reference(0.0), drawn, *marks, width=WIDTH, height=HEIGHT)


def entropy(figures: pd.DataFrame) -> Chart:
    """`step_figures` -> entropy of the attention in nats, mean over heads."""
    rows = figures[figures["quantity"] == "entropy"]
    if rows.empty:
        return empty("Entropy was not recorded.")
    runs = list(dict.fromkeys(rows["run"]))
    return lines(rows, "entropy of attention (nats)", run_colour(runs), shape=run_shape(runs), also=(0.0,))


def per_key(frame: pd.DataFrame) -> Chart:
    """`per_key` -> attention per key over uniform attention; log scale, 1 is no preference."""
    rows = frame.dropna(subset=["mean"])
    if rows.empty:
        return empty("Counts of keys were not recorded.")
    rows = rows[rows["bucket"].isin(_MAIN)]
    rows = rows.assign(label=rows["bucket"].map(BUCKET_NAMES))
    colour = fixed_colour("label", _NAMED_COLOURS, list(rows["label"]))

    def draw(part: pd.DataFrame, width: int) -> alt.LayerChart:
        drawn = lines(part, "attention per key (x uniform)", colour, log=True, width=width, ends=rows, also=(1.0,))
        return layered(reference(1.0), drawn, width=width, height=HEIGHT)

    return per_run(rows, draw)


def heads(masses: pd.DataFrame, ranking: pd.DataFrame, *, top: int = 24) -> Chart:
    """`head_masses` (excess of one bucket) and `head_ranking` -> head x step, the `top` heads that drift most first, with
    their excess at the last step and its interval beside."""
    ranked = ranking[ranking["rank"] <= top]
    if ranked.empty or masses.empty:
        return empty("Attention by head was not recorded.")
    bucket = str(ranked["bucket"].iloc[0])
    cells = masses[(masses["quantity"] == "excess") & (masses["bucket"] == bucket)]
    cells = cells.merge(ranked[["run", "layer", "head", "rank", "p_value"]], on=["run", "layer", "head"])
    for frame in (cells, ranked := ranked.copy()):
        frame["name"] = "layer " + frame["layer"].astype(str) + ", head " + frame["head"].astype(str)
    reach = max(float(cells["mean"].abs().max()), 0.05)
    title = f"excess on {BUCKET_NAMES[bucket]}"
    charts = []
    for run in dict.fromkeys(ranked["run"]):
        part, order = cells[cells["run"] == run], ranked[ranked["run"] == run].sort_values("rank")
        names = list(order["name"])
        y = alt.Y("name:N", title=None, sort=names, axis=alt.Axis(labelLimit=140))
        size = {"height": 16 * len(names)}
        extra = [alt.Tooltip("rank:Q", title="rank"), alt.Tooltip("p_value:Q", title="p (Holm)", format=".2g")]
        grid = (
            alt.Chart(part)
            .mark_rect()
            .encode(
                x=alt.X("step:O", title="step", axis=alt.Axis(labelAngle=0)),
                y=y,
                color=alt.Color(
                    "mean:Q",
                    scale=alt.Scale(scheme="blueorange", domain=[-reach, reach]),
                    legend=alt.Legend(title=title, format="+.2f", gradientLength=120),
                ),
                tooltip=hover(part, title, "+.3f") + extra,
            )
            .properties(width=WIDTH // 2, **size)
        )
        if len(set(ranked["run"])) > 1:
            grid.title = run
        last = int(order["step"].iloc[0])
        beside = f"at step {last}, 95%"
        scale, axis = alt.Scale(padding=8, nice=False), signed("+.2~f", tickCount=3)
        x = alt.X("mean:Q", title=beside, scale=scale, axis=axis)
        base = alt.Chart(order).encode(y=alt.Y("name:N", title=None, sort=names, axis=None))
        bars = base.mark_rule(strokeWidth=2).encode(
            x=alt.X("low:Q", title=beside, scale=scale, axis=axis), x2=alt.X2("high:Q")
        )
        points = base.mark_point(filled=True, size=46, opacity=1).encode(
            x=x, tooltip=hover(order, title, "+.3f") + extra
        )
        zero = alt.Chart(pd.DataFrame({"zero": [0.0]})).mark_rule(style="reference").encode(x=alt.X("zero:Q"))
        colour = alt.value(NEUTRAL)
        side = layered(zero, bars.encode(color=colour), points.encode(color=colour))
        charts.append(alt.hconcat(grid, side.properties(width=WIDTH // 4, **size), spacing=14))
    return charts[0] if len(charts) == 1 else alt.vconcat(*charts, resolve=resolved(color="shared"))


def one_head(head: pd.DataFrame) -> Chart:
    """`head_masses` of one head -> its masses and its excess, beside each other."""
    panels = {"where it looks": masses(head), "beyond no drafting": excess(head)}
    for title, chart in panels.items():
        chart.title = title
    return alt.hconcat(*panels.values(), resolve=resolved(color="independent", y="independent"))


def _of(figures: pd.DataFrame, quantity: str, buckets: tuple[str, ...]) -> pd.DataFrame:
    rows = figures[(figures["quantity"] == quantity) & figures["bucket"].isin(buckets)]
    return rows.assign(label=rows["bucket"].map(BUCKET_NAMES)).drop(columns="quantity")


def _bucket_lines(
    rows: pd.DataFrame, onsets: pd.DataFrame | None, title: str, keys: list[str], *, zero: bool, height: int
) -> Chart:
    if rows.empty:
        return empty("Attention was not recorded.")
    colour = fixed_colour("label", _NAMED_COLOURS, list(rows["label"]))
    # What is smaller than the practical size must not fill the axis.
    practical = 1.2 * PRACTICAL_MASS
    domain = linear_domain(rows, -practical, practical) if zero else [0.0, min(1.0, linear_domain(rows, 0.0)[1])]

    def draw(part: pd.DataFrame, width: int) -> alt.LayerChart:
        drawn = lines(part, title, colour, form="+.3f" if zero else ".3f", domain=domain, width=width, height=height)
        below = [reference(0.0)] if zero else []
        mine = None if onsets is None else onsets[onsets["run"] == part["run"].iloc[0]]
        return layered(*below, drawn, *onset_marks(mine, keys, part["step"].max()), width=width, height=height)

    return per_run(rows, draw)
