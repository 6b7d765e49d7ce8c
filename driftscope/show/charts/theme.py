"""Colours, and the light and dark looks of every chart."""

from __future__ import annotations

from typing import Any, Literal

import altair as alt

from driftscope.show.charts.assembly import specification
from driftscope.show.words import BUCKET_NAMES as BUCKET_NAMES

ThemeName = Literal["light", "dark"]

BUCKET_COLOURS = {
    "sink": "#E69F00",
    "prompt": "#0072B2",
    "committed": "#56B4E9",
    "drafted": "#009E73",
    "current": "#CC79A7",
    "self_generated": "#D55E00",
    "virtual": "#999999",
}
"""Okabe and Ito's colour-blind-safe set (2008), one fixed colour per bucket; blues are the given text."""
RUN_COLOURS = ("#4477AA", "#EE6677", "#228833", "#AA3377", "#CCBB44", "#66CCEE")
"""Paul Tol's colour-blind-safe "bright" set, the two that are pale on white last; runs differ in the shape of their points
as well."""
REGION_COLOURS = {"sink": "#E69F00", "prompt": "#0072B2", "continuation": "#56B4E9"}

WIDTH, HEIGHT = 560, 240
"""Pixels of a chart that stands alone; charts side by side share the width."""

_INK = {"light": "#1b1f24", "dark": "#e8eaed"}
_SOFT = {"light": "#5c6570", "dark": "#a3abb5"}
_GRID = {"light": "#e4e7eb", "dark": "#333a44"}
BACKGROUND = {"light": "#ffffff", "dark": "#12161c"}
_FONT = "system-ui, -apple-system, 'Segoe UI', 'Liberation Sans', Arial, sans-serif"


def theme(name: ThemeName) -> dict[str, Any]:
    """The Vega-Lite config of a look."""
    ink, soft, grid = _INK[name], _SOFT[name], _GRID[name]
    return {
        "background": BACKGROUND[name],
        "font": _FONT,
        "view": {"stroke": grid, "strokeWidth": 1},
        "axis": {
            "labelColor": soft,
            "titleColor": ink,
            "titleFontWeight": "normal",
            "titleFontSize": 12,
            "labelFontSize": 11,
            "gridColor": grid,
            "domainColor": soft,
            "tickColor": soft,
        },
        "legend": {
            "labelColor": ink,
            "titleColor": soft,
            "titleFontWeight": "normal",
            "labelFontSize": 12,
            "titleFontSize": 11,
            "labelLimit": 300,
            "symbolStrokeWidth": 2,
        },
        "header": {"labelColor": ink, "titleColor": soft, "labelFontSize": 12, "labelFontWeight": "bold"},
        "title": {
            "color": ink,
            "subtitleColor": soft,
            "fontSize": 13,
            "fontWeight": "bold",
            "subtitleFontSize": 11,
            "anchor": "start",
            "frame": "group",
            "offset": 8,
        },
        # Vega's own black is not seen on a dark page.
        "rule": {"color": ink},
        "style": {
            "onset-rule": {"color": soft, "strokeDash": [4, 3], "strokeWidth": 1.2},
            "onset-label": {"color": ink, "fontSize": 11, "fontWeight": "normal"},
            "interval": {"color": ink, "strokeWidth": 1.6},
            "reference": {"color": soft, "strokeWidth": 1, "strokeDash": [1, 2], "opacity": 0.9},
            "note": {"color": soft, "fontSize": 11},
        },
    }


def themed(chart: Any, name: ThemeName = "light") -> Any:
    """A copy of the chart in that look."""
    dressed = chart.copy(deep=False)
    dressed.config = alt.Config.from_dict(theme(name))
    return dressed


def spec(chart: Any, name: ThemeName | None = None) -> dict[str, Any]:
    """The Vega-Lite specification, in a look or without one."""
    return {**specification(chart), "config": {} if name is None else theme(name)}
