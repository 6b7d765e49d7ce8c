"""Charts: pure functions from the frames of `driftscope.show.frames` to Altair charts, one module per question.

A chart has no look of its own: `themed(chart, "dark")` gives it one, `spec` is its Vega-Lite specification.
"""

from driftscope.show.charts import acceptance, attention, norms
from driftscope.show.charts.overview import overview
from driftscope.show.charts.theme import BUCKET_COLOURS, BUCKET_NAMES, RUN_COLOURS, ThemeName, spec, theme, themed

__all__ = [
    "BUCKET_COLOURS",
    "BUCKET_NAMES",
    "RUN_COLOURS",
    "ThemeName",
    "acceptance",
    "attention",
    "norms",
    "overview",
    "spec",
    "theme",
    "themed",
]
