"""An engine's counters beside the walk and the reading that predicts them, by position."""

from __future__ import annotations

import altair as alt
import pandas as pd

from driftscope.show.charts.base import Chart, empty, lines, run_colour, run_shape, step_axis


def engine_positions(frame: pd.DataFrame) -> Chart:
    """`engine_frame` -> share of drafts that accept at least so many tokens, a line each for engine, walk and best reading; the
    walk's band is where 95% of sound engines would lie."""
    if frame.empty:
        return empty("The engine counted no positions.")
    names = list(dict.fromkeys(frame["run"]))
    axis: alt.X = step_axis(frame["step"], "position in the draft")
    title = "share of drafts accepted up to here"
    return lines(frame, title, run_colour(names), shape=run_shape(names), form=".3f", x=axis)
