"""Every picture of a run in reading order: what it shows, its chart, and the same figures as a table."""

from __future__ import annotations

import pandas as pd

from driftscope.show import frames
from driftscope.show.frames import Runs
from driftscope.show.gallery import clean, conditions
from driftscope.show.gallery.cost import cost_pictures
from driftscope.show.gallery.picture import SECTIONS, Picture, View
from driftscope.show.gallery.tables import figures_table

__all__ = ["SECTIONS", "Picture", "figures_table", "pictures"]

_DRAWERS = (
    clean.overview_pictures,
    cost_pictures,
    clean.norm_pictures,
    clean.attention_pictures,
    clean.acceptance_pictures,
    conditions.noise_pictures,
    conditions.pin_pictures,
    conditions.depth_pictures,
    conditions.layers_pictures,
    conditions.template_pictures,
    conditions.length_pictures,
)


def pictures(runs: Runs, depth: int | None = None, onsets: pd.DataFrame | None = None) -> list[Picture]:
    """Every picture for which one of the runs holds figures, in the order of `SECTIONS`.

    `depth` as in `Run.summary`; `onsets` are those to mark, by default the summaries'.
    """
    marks = frames.onsets(runs, depth) if onsets is None else onsets
    view = View(runs, depth, marks)
    return [picture for draw in _DRAWERS for picture in draw(view)]
