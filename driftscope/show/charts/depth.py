"""Depth: acceptance, rank and growth to the horizon."""

from __future__ import annotations

import altair as alt
import pandas as pd

from driftscope.show.charts.base import Chart, empty, layered, lines, onset_marks, reference, run_colour, run_shape
from driftscope.show.charts.theme import HEIGHT, WIDTH

_KINDS = {
    ("text", "agreement"): "agreement, fed with the text",
    ("drafted", "conditional"): "conditional acceptance, fed with its own tokens",
}
_FEEDS = {"text": "fed with the text", "drafted": "fed with its own tokens"}
_DASHES = ([1, 0], [5, 3])


def agreement(frame: pd.DataFrame, collapses: pd.DataFrame | None = None) -> Chart:
    """`depth`, `collapses` -> top-1 agreement with the text (solid) and conditional acceptance (dashed) per step; a rule where
    agreement falls under half of step 1's."""
    rows = frame[frame["quantity"].isin([name for _, name in _KINDS])]
    if rows.empty:
        return empty("The depth probe was not run.")
    rows = rows.assign(label=[_KINDS.get(key, "") for key in zip(rows["feed"], rows["quantity"], strict=True)])
    return _drawn(rows, "agreement with the target", list(_KINDS.values()), [0.0, 1.0], collapses)


def rank(frame: pd.DataFrame) -> Chart:
    """`depth` -> geometric mean of the rank that the drafter gives to the target's token, per step; log scale, 1 is the top."""
    rows = frame[frame["quantity"] == "rank"]
    if rows.empty:
        return empty("Ranks were not recorded.")
    rows = rows.assign(label=rows["feed"].map(_FEEDS))
    return _drawn(rows, "rank of the target's token", list(_FEEDS.values()), None, None, log=True, baseline=1.0)


def growth(frame: pd.DataFrame) -> Chart:
    """`depth` -> RMS of the carry over step 1's, to the horizon; log scale."""
    rows = frame[frame["quantity"] == "growth"]
    if rows.empty:
        return empty("The norm of the carry was not recorded.")
    rows = rows.assign(label=rows["feed"].map(_FEEDS))
    return _drawn(rows, "growth of the carry's RMS (x)", list(_FEEDS.values()), None, None, log=True, baseline=1.0)


def _drawn(
    rows: pd.DataFrame,
    title: str,
    names: list[str],
    domain: list[float] | None,
    marks: pd.DataFrame | None,
    *,
    log: bool = False,
    baseline: float | None = None,
) -> Chart:
    runs = list(dict.fromkeys(rows["run"]))
    held = [name for name in names if (rows["label"] == name).any()]
    dash = alt.StrokeDash(
        "label:N",
        scale=alt.Scale(domain=held, range=list(_DASHES)[: len(held)]),
        legend=alt.Legend(title=None, orient="top", symbolType="stroke", labelLimit=360),
        sort=held,
    )
    drawn = lines(
        rows.drop(columns=["quantity", "feed", "bucket"]),
        title,
        run_colour(runs),
        log=log,
        detail="label",
        dash=dash,
        shape=run_shape(runs),
        domain=domain,
        also=() if baseline is None else (baseline,),
    )
    below = [] if baseline is None else [reference(baseline)]
    rules = onset_marks(marks, ["collapse"], int(rows["step"].max()), runs=len(runs) > 1)
    return layered(*below, drawn, *rules, width=WIDTH, height=HEIGHT)
