"""Several runs, step by step, in panels that share what is picked: a run in the legend, a step by a click."""

from __future__ import annotations

import warnings

import altair as alt
import pandas as pd

from driftscope.charts.base import Chart, empty, lines, reference, run_colour, run_shape
from driftscope.charts.theme import WIDTH

RUN, STEP = "picked_run", "picked_step"
"""Names of the selections."""
_PANELS = (
    ("growth", "", "Growth of the carry's RMS", "x step 1", 1.0, ".2f"),
    ("excess", "self_generated", "Excess on self-generated tokens", "share of attention", 0.0, "+.3f"),
    ("displacement", "", "Displacement of attention", "share of attention", 0.0, ".3f"),
    ("conditional", "", "Conditional acceptance", "share accepted", None, ".3f"),
)


def linked(figures: pd.DataFrame) -> Chart:
    """`step_figures` -> growth, excess, displacement and conditional acceptance by step with 95% intervals, a line per run.

    A click on the legend dims the other runs, a click into a panel marks that step in all of them.
    """
    if figures.empty:
        return empty("There is nothing to compare.")
    runs = list(dict.fromkeys(figures["run"]))
    run = alt.selection_point(name=RUN, fields=["run"], bind="legend")
    step = alt.selection_point(name=STEP, fields=["step"], nearest=True, on="click")
    panels = []
    for quantity, bucket, title, unit, null, form in _PANELS:
        rows = figures[(figures["quantity"] == quantity) & (figures["bucket"] == bucket)]
        rows = rows.drop(columns=["quantity", "bucket"])
        if rows["mean"].isna().all():
            continue
        drawn = lines(
            rows,
            unit,
            run_colour(runs),
            log=quantity == "growth",
            form=form,
            shape=run_shape(runs),
            domain=[0.0, 1.0] if quantity == "conditional" else None,
            also=() if null is None else (null,),
            width=WIDTH // 2,
            height=190,
        )
        # A layer taken out of its chart has lost the rows of the chart.
        band, line, points = (layer.properties(data=rows) for layer in drawn.layer)
        layers = [
            band.encode(opacity=alt.condition(run, alt.value(0.16), alt.value(0.03))),
            line.encode(opacity=alt.condition(run, alt.value(1.0), alt.value(0.15))),
            points.encode(opacity=alt.condition(run, alt.value(1.0), alt.value(0.15))).add_params(run, step),
        ]
        seen = alt.condition(step, alt.value(1.0), alt.value(0.0), empty=False)
        mark = alt.Chart(rows).mark_rule(style="onset-rule").encode(x="step:Q", opacity=seen)
        below = [] if null is None else [reference(null)]
        panels.append(alt.layer(*below, mark, *layers, width=WIDTH // 2, height=190, title=title))
    with warnings.catch_warnings():
        # All panels share them: that is what links the panels.
        warnings.filterwarnings("ignore", "Automatically deduplicated selection parameter")
        chart = alt.concat(*panels, columns=2, spacing=24)
        return chart.resolve_scale(color="shared", shape="shared")
