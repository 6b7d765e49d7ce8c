"""Checkpoints of one training: which runs belong together, and their figures by training step."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import altair as alt
import pandas as pd

from driftscope.app.drawing import Drawn
from driftscope.app.library import Entry
from driftscope.findings.cost import PRACTICAL_TOKENS
from driftscope.runs.naming import short_name
from driftscope.show.charts.assembly import layered
from driftscope.show.charts.base import NEUTRAL, linear_scale, log_scale, reference
from driftscope.show.charts.theme import RUN_COLOURS

_NUMBERED = re.compile(r"(?:global_step|checkpoint|step|iter|epoch)s?[-_=.]?(\d+)", re.IGNORECASE)
_FEWEST = 2
_SIZE = {"width": 380, "height": 170}


@dataclass(frozen=True)
class Figure:
    """One panel: a figure of the digest by training step."""

    name: str
    title: str
    unit: str
    null: float
    better: str


FIGURES = (
    Figure("served", "Served length", "accepted tokens a round", 0.0, "higher"),
    Figure("cost", "Cost of drift", "accepted tokens per anchor", 0.0, "lower"),
    Figure("growth", "Norm growth", "x step 1, at the last step", 1.0, "lower"),
    Figure("displacement", "Displacement", "share of attention that moved", 0.0, "lower"),
    Figure("onset", "Onset of drift", "first step that drifts", 1.0, "higher"),
)


def trainings(entries: Sequence[Entry]) -> dict[str, list[tuple[int, Entry]]]:
    """Runs by training, in the order of their steps: checkpoints whose paths differ in one number, with the same target."""
    found: dict[tuple[str, str], dict[int, Entry]] = {}
    for entry in entries:
        info = entry.info
        match = None if info is None else _last(info.checkpoint.path)
        if info is None or match is None:
            continue
        path = info.checkpoint.path
        rest = f"{path[: match.start(1)]}*{path[match.end(1) :]}"
        # Of several runs of a checkpoint the newest, which comes first.
        found.setdefault((rest, info.target.fingerprint), {}).setdefault(int(match.group(1)), entry)
    return {
        f"{_named(rest)} for {short_name(next(iter(steps.values())).info.target.name)}": sorted(steps.items())  # type: ignore[union-attr]
        for (rest, _), steps in found.items()
        if len(steps) >= _FEWEST
    }


def rows(steps: Sequence[tuple[int, Mapping[str, Any]]]) -> pd.DataFrame:
    """Tidy figures of digests by training step: `figure`, `step`, `mean`, `low`, `high`; what was not measured has no row."""
    records = []
    for step, digest in steps:
        for figure in FIGURES:
            value = _figure(digest, figure.name)
            if value is not None:
                records.append({"figure": figure.name, "step": step, **value})
    frame = pd.DataFrame(records, columns=["figure", "step", "mean", "low", "high"])
    return frame.astype({"mean": float, "low": float, "high": float})


def sentences(frame: pd.DataFrame) -> list[str]:
    """The newest checkpoint against the best of those before, where a figure has two."""
    told = []
    for figure in FIGURES:
        part = frame[frame["figure"] == figure.name].sort_values("step")
        if len(part) < _FEWEST:
            continue
        before, now = part.iloc[:-1], part.iloc[-1]
        best = before.loc[before["mean"].idxmax() if figure.better == "higher" else before["mean"].idxmin()]
        better = now["mean"] >= best["mean"] if figure.better == "higher" else now["mean"] <= best["mean"]
        verb = "as good as or better than" if better else "worse than"
        told.append(
            f"{figure.title}: {now['mean']:.2f} at step {now['step']:.0f}, {verb} the best before ({best['mean']:.2f} at step"
            f" {best['step']:.0f})"
        )
    return told


def drawn(frame: pd.DataFrame) -> list[Drawn]:
    """A card per figure."""
    cards = []
    for figure in FIGURES:
        part = frame[frame["figure"] == figure.name].drop(columns="figure")
        if len(part):
            about = f"{figure.unit}, by training step; {figure.better} is better; bars are 95% intervals over prompts."
            cards.append(Drawn.chart(f"training-{figure.name}", figure.title, about, _chart(part, figure), part))
    return cards


def _chart(part: pd.DataFrame, figure: Figure) -> alt.LayerChart:
    log = figure.name == "growth"
    near = (1.5,) if log else (PRACTICAL_TOKENS,)
    scale, axis = log_scale(part, figure.null, *near) if log else linear_scale(part, figure.null, *near)
    x = alt.X("step:Q", title="training step", axis=alt.Axis(format="~s"))
    y = alt.Y("mean:Q", title=figure.unit, scale=scale, axis=axis)
    tips = [
        alt.Tooltip("step:Q", title="training step", format=",d"),
        alt.Tooltip("mean:Q", title=figure.title, format=".3f"),
    ]
    if part[["low", "high"]].notna().any().all():
        ends = (("low", "95% from"), ("high", "to"))
        tips += [alt.Tooltip(f"{name}:Q", title=text, format=".3f") for name, text in ends]
    base = alt.Chart(part).encode(x=x)
    bars = base.mark_rule(color=NEUTRAL, strokeWidth=1.5).encode(y=alt.Y("low:Q", scale=scale, axis=axis), y2="high:Q")
    line = base.mark_line(strokeWidth=2, color=RUN_COLOURS[0]).encode(y=y)
    points = base.mark_point(filled=True, size=50, opacity=1, color=RUN_COLOURS[0]).encode(y=y, tooltip=tips)
    return layered(reference(figure.null), bars, line, points, **_SIZE)


def _figure(digest: Mapping[str, Any], name: str) -> dict[str, float | None] | None:
    if name == "onset":
        starts = [start for start in digest.get("onset", {}).values() if isinstance(start, int)]
        return {"mean": float(min(starts)), "low": None, "high": None} if starts else None
    value = (digest.get("cost") or {}).get("cost") if name == "cost" else digest.get(name)
    return None if not value or value.get("mean") is None else {end: value.get(end) for end in ("mean", "low", "high")}


def _last(path: str) -> re.Match[str] | None:
    found = list(_NUMBERED.finditer(path))
    return found[-1] if found else None


def _named(rest: str) -> str:
    parts = Path(rest).parts
    return "/".join(parts[-2:]) if parts else rest
