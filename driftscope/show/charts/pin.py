"""Pin: the drift that is left when the size of the carried state is held."""

from __future__ import annotations

import altair as alt
import pandas as pd

from driftscope.figures.pin import CONDITIONS
from driftscope.show.charts.base import Chart, empty, fixed_colour, hover, layered, lines, per_run, reference, resolved
from driftscope.show.charts.theme import WIDTH
from driftscope.stats.drift import PRACTICAL_MASS

_COLOURS = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_EFFECTS = {
    "share_from_magnitude": "share of the excess that magnitude causes",
    "length_kept": "length kept (100% = all)",
}


def excess(frame: pd.DataFrame) -> Chart:
    """`pin` -> excess on self-generated tokens per step, free and under each pin."""
    rows = frame[frame["quantity"] == "excess"]
    if rows.empty:
        return empty("The pin probe was not run.")
    rows = _labelled(rows)
    colour = fixed_colour("label", _fixed(rows), list(rows["label"]), columns=2)
    # A pin that changes nothing must not hide what it is compared with.
    rows["line"] = rows["condition"] == "free"
    dash = alt.StrokeDash("line:N", scale=alt.Scale(domain=[True, False], range=[[1, 0], [6, 4]]), legend=None)
    ends = pd.concat([rows, rows.head(1).assign(mean=-PRACTICAL_MASS), rows.head(1).assign(mean=1.2 * PRACTICAL_MASS)])

    def draw(part: pd.DataFrame, width: int) -> alt.LayerChart:
        drawn = lines(part, "excess on self-generated", colour, dash=dash, form="+.3f", width=width, ends=ends)
        return layered(reference(0.0), drawn, width=width)

    return per_run(rows.drop(columns="quantity"), draw)


def effects(frame: pd.DataFrame) -> Chart:
    """`pin` -> per pin, the share of the excess slope that magnitude causes and the length that is kept, with 95% intervals."""
    rows = frame[frame["quantity"].isin(_EFFECTS) & (frame["condition"] != "free")]
    if rows.empty:
        return empty("No effect of a pin could be measured.")
    rows = _labelled(rows).drop(columns="step")
    colours = _fixed(rows)
    beside = len(set(rows["run"])) > 1
    panels = []
    for run in dict.fromkeys(rows["run"]):
        for place, (name, title) in enumerate(_EFFECTS.items()):
            part = rows[(rows["quantity"] == name) & (rows["run"] == run)]
            if part.empty:
                continue
            order = [label for label in colours if label in set(part["label"])]
            x = alt.X("mean:Q", title=title, axis=alt.Axis(format="%", tickCount=5))
            base = alt.Chart(part).encode(
                y=alt.Y("label:N", title=None, sort=order, axis=None if place and beside else alt.Axis(labelLimit=260)),
                color=alt.Color(
                    "label:N", scale=alt.Scale(domain=order, range=[colours[o] for o in order]), legend=None
                ),
            )
            bars = base.mark_rule(strokeWidth=2).encode(x=alt.X("low:Q", title=title), x2=alt.X2("high:Q"))
            dots = base.mark_point(filled=True, size=70, opacity=1).encode(x=x, tooltip=hover(part, title, ".1%"))
            marks = alt.Chart(pd.DataFrame({"at": [0.0, 1.0]})).mark_rule(style="reference").encode(x=alt.X("at:Q"))
            chart = layered(marks, bars, dots, width=WIDTH // (3 if beside else 2), height=34 * len(order))
            if beside:
                chart.title = run
            panels.append(chart)
    apart = resolved(color="independent", y="independent")
    return alt.concat(*panels, columns=2, resolve=apart) if beside else alt.vconcat(*panels, resolve=apart)


def _labelled(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.assign(label=rows["condition"].map(lambda name: CONDITIONS.get(name, name)))


def _fixed(rows: pd.DataFrame) -> dict[str, str]:
    names = list(dict.fromkeys([*CONDITIONS.values(), *rows["label"]]))
    return {name: _COLOURS[place % len(_COLOURS)] for place, name in enumerate(names)}
