"""Several runs, step by step, in panels that share what is picked: a run in the legend, a step by a click."""

from __future__ import annotations

from typing import Any

import altair as alt
import pandas as pd

from driftscope.show.charts.assembly import in_rows, layered
from driftscope.show.charts.base import Chart, empty, lines, reference, resolved, run_colour, run_shape
from driftscope.show.charts.sparse import sure, unsure
from driftscope.show.charts.theme import WIDTH
from driftscope.stats.drift import PRACTICAL_MASS

RUN, STEP = "picked_run", "picked_step"
"""Names of the selections."""
_PANELS = (
    ("growth", "", "Growth of the carry's RMS", "growth (x step 1)", 1.0, ".2f"),
    ("excess", "self_generated", "Excess on self-generated tokens", "excess (share of attention)", 0.0, "+.3f"),
    ("displacement", "", "Displacement of attention", "displaced (share of attention)", 0.0, ".3f"),
    ("conditional", "", "Conditional acceptance", "share accepted", None, ".3f"),
)
_PRACTICAL = {"excess": (-1.2 * PRACTICAL_MASS, 1.2 * PRACTICAL_MASS), "displacement": (1.2 * PRACTICAL_MASS,)}
"""What is smaller than the practical size must not fill the axis."""
_SPACING = {"row": 68, "column": 66}
"""Between the frames of panels: room for axes and titles."""


def linked(figures: pd.DataFrame) -> Chart:
    """`step_figures` -> growth, excess, displacement and conditional acceptance by step with 95% intervals, a line per run.

    A click on the legend dims the other runs, a click into a panel marks that step in all of them.
    """
    if figures.empty:
        return empty("There is nothing to compare.")
    runs = list(dict.fromkeys(figures["run"]))
    run = alt.selection_point(name=RUN, fields=["run"], bind="legend")
    step = alt.selection_point(name=STEP, fields=["step"], nearest=True, on="click")
    panels: list[alt.LayerChart] = []
    for quantity, bucket, title, unit, null, form in _PANELS:
        rows = figures[(figures["quantity"] == quantity) & (figures["bucket"] == bucket)]
        rows = rows.drop(columns=["quantity", "bucket"])
        if rows["mean"].isna().all():
            continue
        drawn = lines(
            sure(rows),
            unit,
            run_colour(runs),
            log=quantity == "growth",
            form=form,
            shape=run_shape(runs),
            domain=[0.0, 1.0] if quantity == "conditional" else None,
            also=() if null is None else (null, *_PRACTICAL.get(quantity, ())),
            width=WIDTH // 2,
            height=190,
        )
        # A layer taken out of its chart has lost the rows of the chart.
        band, line, points = (layer.properties(data=sure(rows)) for layer in drawn.layer)
        # Ends in the place of the panel, as altair wants it.
        points.name = f"picked_{len(panels)}"
        layers = [
            band.encode(opacity=_either(run, 0.16, 0.03)),
            line.encode(opacity=_either(run, 1.0, 0.15)),
            points.encode(opacity=_either(run, 1.0, 0.15)),
        ]
        scale = alt.Scale(domain=[0.0, 1.0], nice=False)
        y = alt.Y("mean:Q", title=unit, scale=scale)
        few = unsure(rows, y, run_colour(runs), unit, form) if quantity == "conditional" else []
        mark = alt.Chart(rows).mark_rule(style="onset-rule")
        mark = mark.encode(x=alt.X("step:Q"), opacity=_either(step, 1.0, 0.0, empty=False))
        below = [] if null is None else [reference(null)]
        panels.append(layered(*below, mark, *layers, *few, width=WIDTH // 2, height=190, title=title))
    chart = in_rows(
        *panels, columns=2, bounds="flush", spacing=_SPACING, resolve=resolved(color="shared", shape="shared")
    )
    # All panels share them: that is what links the panels.
    views = [f"picked_{place}" for place in range(len(panels))]
    chart.params = [_shared(pick, views) for pick in (run, step)]
    return chart


def _shared(pick: alt.Parameter, views: list[str]) -> alt.TopLevelSelectionParameter:
    assert isinstance(pick.param, alt.SelectionParameter)
    return alt.TopLevelSelectionParameter(**pick.param.to_dict(), views=views)


def _either(pick: alt.Parameter, picked: float, other: float, **options: Any) -> alt.OpacityValue:
    return alt.OpacityValue(**alt.condition(pick, alt.value(picked), alt.value(other), **options))
