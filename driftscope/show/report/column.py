"""Charts as wide as the column of the report."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

COLUMN = 1080
"""Pixels of the column, its padding left out; the page's stylesheet says the same."""
_GROUPS = ("vconcat", "hconcat", "concat", "layer")
_LEAST, _MARGIN = 0.3, 8
"""Below this factor panels are not read any more; pixels by which the browser's letters may be wider than ours."""


def widened(plain: Mapping[str, Any], svg: str) -> dict[str, Any]:
    """The specification with panels that fill the column. Axes and legends keep their size, which `svg`, the chart as it
    was drawn, tells; a chart whose width follows from its rows stays as it is."""
    found = re.search(r'<svg[^>]*?\bwidth="([\d.]+)"', svg)
    drawn = inner(plain)
    if found is None or not drawn:
        return dict(plain)
    factor = (COLUMN - _MARGIN - (float(found[1]) - drawn)) / drawn
    return scaled(plain, factor) if factor > _LEAST else dict(plain)


def inner(view: Mapping[str, Any]) -> float:
    """Pixels across which the panels of a view draw, without axes and legends: the widest row."""
    row = view.get("hconcat") or view.get("concat", [])[: view.get("columns")]
    if row:
        return sum(inner(part) for part in row)
    own = view.get("width")
    parts = [inner(part) for key in _GROUPS for part in view.get(key, ())]
    return max([float(own) if isinstance(own, int | float) else 0.0, *parts])


def scaled(view: Mapping[str, Any], factor: float) -> dict[str, Any]:
    """The view with every width that is stated multiplied."""
    changed = dict(view)
    if isinstance(view.get("width"), int | float):
        changed["width"] = int(view["width"] * factor)
    for key in _GROUPS:
        if key in view:
            changed[key] = [scaled(part, factor) for part in view[key]]
    return changed
