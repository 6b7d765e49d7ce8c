"""What drift costs: the way of every drafted token, and the cost by path."""

from __future__ import annotations

import altair as alt
import pandas as pd

from driftscope.show.charts.assembly import in_rows
from driftscope.show.charts.base import Chart, empty, fixed_colour, layered, resolved, run_colour
from driftscope.show.charts.theme import WIDTH

PARTS = {
    "accepted": "accepted",
    "state": "lost: drifted state",
    "pattern": "lost: drifted attention",
    "values": "lost: drifted values",
    "several": "lost: several drifted parts",
    "block": "lost: drafting in one block",
    "drafter": "lost: the drafter itself",
    "target_undecided": "lost: target undecided",
    "vocabulary": "lost: not in the draft vocabulary",
}
"""In the order in which a bar shows them: what drift takes stands next to what is accepted."""
PATHS = {"cost": "in all", "state": "carried state", "pattern": "attention", "values": "values of its own rows"}
_COLOURS = dict(
    zip(
        PARTS.values(),
        ("#0072B2", "#D55E00", "#E69F00", "#F0E442", "#CC79A7", "#CC79A7", "#8c8c8c", "#bdbdbd", "#d9d9d9"),
        strict=True,
    )
)
_ROW, _STACK = 34, 200
_BESIDE, _GAP = 2, 60


def budget(frame: pd.DataFrame) -> Chart:
    """`frames.cost.budget` -> a bar a run: of the drafted tokens those accepted, and those lost to each reason."""
    if frame.empty:
        return empty("The probe cost was not run.")
    rows = frame.assign(label=frame["part"].map(PARTS), order=frame["part"].map(list(PARTS).index))
    names = list(dict.fromkeys(rows["run"]))
    depth = int(rows["depth"].max())
    tips = [
        alt.Tooltip("run:N", title="run"),
        alt.Tooltip("label:N", title="of the drafted tokens"),
        alt.Tooltip("mean:Q", title="tokens per anchor", format=".3f"),
        alt.Tooltip("low:Q", title="95% from", format=".3f"),
        alt.Tooltip("high:Q", title="to", format=".3f"),
        alt.Tooltip("count:Q", title="anchors", format=",d"),
        alt.Tooltip("prompts:Q", title="prompts", format=",d"),
    ]
    bars = alt.Chart(rows).mark_bar(stroke="white", strokeWidth=0.5)
    return bars.encode(
        x=alt.X("mean:Q", title="tokens per anchor", stack="zero", scale=alt.Scale(domain=[0, depth], nice=False)),
        y=alt.Y("run:N", title=None, sort=names),
        color=fixed_colour("label", _COLOURS, list(rows["label"]), columns=3),
        order=alt.Order("order:Q"),
        tooltip=tips,
    ).properties(width=WIDTH, height=_ROW * len(names))


def paths(frame: pd.DataFrame) -> Chart:
    """`frames.cost.paths` -> tokens that drift costs, in all and by path, with 95% intervals; 0 is marked."""
    if frame.empty:
        return empty("What drift costs was not measured.")
    rows = frame.assign(label=frame["path"].map(PATHS))
    names = list(dict.fromkeys(rows["run"]))
    base = alt.Chart(rows).encode(
        y=alt.Y("label:N", title=None, sort=list(PATHS.values())),
        yOffset=alt.YOffset("run:N", sort=names),
        color=run_colour(names),
        tooltip=[
            alt.Tooltip("run:N", title="run"),
            alt.Tooltip("label:N", title="through"),
            alt.Tooltip("mean:Q", title="tokens per anchor", format="+.3f"),
            alt.Tooltip("low:Q", title="95% from", format="+.3f"),
            alt.Tooltip("high:Q", title="to", format="+.3f"),
            alt.Tooltip("count:Q", title="anchors", format=",d"),
            alt.Tooltip("prompts:Q", title="prompts", format=",d"),
        ],
    )
    zero = alt.Chart(pd.DataFrame({"at": [0.0]})).mark_rule(strokeDash=[4, 4], opacity=0.6).encode(x="at:Q")
    bars = base.mark_rule(strokeWidth=2).encode(x=alt.X("low:Q", title="accepted tokens that drift costs"), x2="high:Q")
    points = base.mark_point(filled=True, size=60, opacity=1).encode(x="mean:Q")
    return layered(zero, bars, points, width=WIDTH, height=4 * max(_ROW, 14 * len(names)))


def ends(frame: pd.DataFrame) -> Chart:
    """`frames.cost.ends` -> a stack a step and run: which part of the chains that are alive is accepted, and why the rest ends."""
    if frame.empty:
        return empty("Where chains end was not measured.")
    rows = frame.assign(label=frame["part"].map(PARTS), order=frame["part"].map(list(PARTS).index))
    names = list(dict.fromkeys(rows["run"]))
    width = (WIDTH - _GAP * (len(names) - 1)) // min(len(names), _BESIDE)
    # The same colours in every panel, whatever occurs in it.
    colour = fixed_colour("label", _COLOURS, list(rows["label"]), columns=3)
    panels = [_stack(rows[rows["run"] == name], name if len(names) > 1 else None, width, colour) for name in names]
    return panels[0] if len(panels) == 1 else in_rows(*panels, columns=_BESIDE, resolve=resolved(color="shared"))


def _stack(rows: pd.DataFrame, title: str | None, width: int, colour: alt.Color) -> Chart:
    bars = alt.Chart(rows, title=title or alt.Undefined).mark_bar(stroke="white", strokeWidth=0.5)
    return bars.encode(
        x=alt.X("step:O", title="step", axis=alt.Axis(labelAngle=0)),
        y=alt.Y(
            "mean:Q",
            title="share of living chains",
            stack="zero",
            scale=alt.Scale(domain=[0, 1]),
            axis=alt.Axis(format="%"),
        ),
        color=colour,
        order=alt.Order("order:Q"),
        tooltip=[
            alt.Tooltip("run:N", title="run"),
            alt.Tooltip("step:O", title="step"),
            alt.Tooltip("label:N", title="of the living chains"),
            alt.Tooltip("mean:Q", title="share", format=".1%"),
            alt.Tooltip("low:Q", title="95% from", format=".1%"),
            alt.Tooltip("high:Q", title="to", format=".1%"),
            alt.Tooltip("count:Q", title="living chains", format=",d"),
            alt.Tooltip("prompts:Q", title="prompts", format=",d"),
        ],
    ).properties(width=width, height=_STACK)
