"""Charts made of charts, put together and written out without the copies that altair makes of every part at every level: those
take most of the time that a page needs for drawing."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from typing import Any, TypeVar

import altair as alt
import numpy as np
import pandas as pd

Held = TypeVar("Held", alt.LayerChart, alt.HConcatChart, alt.VConcatChart, alt.ConcatChart)
_PARTS: dict[type, str] = {
    alt.LayerChart: "layer",
    alt.HConcatChart: "hconcat",
    alt.VConcatChart: "vconcat",
    alt.ConcatChart: "concat",
}
_OF_A_LAYER = ("width", "height", "view")
"""What only the whole of several layers may have."""


def layered(*parts: Any, **properties: Any) -> alt.LayerChart:
    """`alt.layer` of charts without selections that were made for it: they are changed in place. So in all of these."""
    chart = _holding(alt.LayerChart, parts, properties)
    for part in parts:
        for name in _OF_A_LAYER:
            value = getattr(part, name, alt.Undefined)
            if value is not alt.Undefined:
                chart[name] = value if chart[name] is alt.Undefined else chart[name]
                part[name] = alt.Undefined
    return chart


def beside(*parts: Any, **properties: Any) -> alt.HConcatChart:
    """`alt.hconcat`."""
    return _holding(alt.HConcatChart, parts, properties)


def below(*parts: Any, **properties: Any) -> alt.VConcatChart:
    """`alt.vconcat`."""
    return _holding(alt.VConcatChart, parts, properties)


def in_rows(*parts: Any, **properties: Any) -> alt.ConcatChart:
    """`alt.concat`, of as many `columns`."""
    return _holding(alt.ConcatChart, parts, properties)


def _holding(kind: type[Held], parts: Sequence[Any], properties: dict[str, Any]) -> Held:
    """The rows that all parts share are those of the whole."""
    chart = kind(**properties)
    shared = parts[0].data
    if shared is not alt.Undefined and all(part.data is shared for part in parts):
        chart.data = shared
        for part in parts:
            part.data = alt.Undefined
    chart[_PARTS[kind]] = list(parts)
    return chart


def specification(chart: Any) -> dict[str, Any]:
    """`chart.to_dict(validate=False)` without its config. Every encoding has to say its type: rows are not looked at."""
    datasets: dict[str, Any] = {}
    plain = _plain(chart, datasets, {"top_level": False})
    return {"$schema": alt.SCHEMA_URL, **plain, **({"datasets": datasets} if datasets else {})}


def _plain(chart: Any, datasets: dict[str, Any], context: dict[str, Any]) -> dict[str, Any]:
    inner = _PARTS.get(type(chart), "")
    rows = chart.data
    framed = isinstance(rows, pd.DataFrame)
    own = {name: value for name, value in chart._kwds.items() if name != inner and not (framed and name == "data")}
    if rows is not alt.Undefined:
        context = {**context, "data": None}
    plain: dict[str, Any] = type(chart)(**own).to_dict(validate=False, context=context)
    if framed:
        values = _records(rows)
        name = f"data-{hashlib.sha256(json.dumps(values, sort_keys=True, default=str).encode()).hexdigest()[:32]}"
        datasets[name] = values
        plain["data"] = {"name": name}
    if inner:
        plain[inner] = [_plain(part, datasets, context) for part in chart[inner]]
    return plain


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows as JSON has them: null for what is not a number, and for what is infinite."""
    columns = []
    for name in frame:
        column = frame[name]
        values = column.tolist()
        kind = column.dtype.kind if isinstance(column.dtype, np.dtype) else "O"
        if kind == "f":
            values = [value if math.isfinite(value) else None for value in values]
        elif kind not in "biu":
            values = [None if missing else value for value, missing in zip(values, column.isna(), strict=True)]
        columns.append(values)
    return [dict(zip(frame, row, strict=True)) for row in zip(*columns, strict=True)]
