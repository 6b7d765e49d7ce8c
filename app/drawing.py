"""A chart that is ready to be shown: its specification, what it draws as rows, and the words around it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from driftscope.show.charts import spec
from driftscope.show.gallery import Picture

Spec = dict[str, Any]
_GROUPS = ("vconcat", "hconcat", "concat")
_AXIS, _GAP, _LEGEND, _NAMES = 66, 24, 95, 90
"""About how many pixels an axis, a panel without one, a legend of colours and names of categories take."""
_SYMBOL = 4
"""Characters that a symbol of a legend takes."""


@dataclass(frozen=True)
class Drawn:
    """One card of a page. Plain data, so that it can be cached."""

    name: str
    """Unique on its page; also the name of files."""
    title: str
    about: str
    spec: Spec
    """Vega-Lite without colours of a theme."""
    table: pd.DataFrame = field(default_factory=pd.DataFrame)
    """To read: one line per step, boundary, head, ..."""
    sentences: tuple[str, ...] = ()

    @classmethod
    def of(cls, picture: Picture) -> Drawn:
        """A picture of the gallery."""
        return cls(
            picture.name, picture.title, picture.about, spec(picture.chart), picture.table, tuple(picture.sentences)
        )

    @classmethod
    def chart(cls, name: str, title: str, about: str, chart: Any, table: pd.DataFrame | None = None) -> Drawn:
        """A chart of `driftscope.show.charts`."""
        return cls(name, title, about, spec(chart), pd.DataFrame() if table is None else table)

    @property
    def wide(self) -> bool:
        """Panels that share an axis of names or what is picked: one drawing, which needs the width of a page."""
        if self.beside:
            return False
        return any(key in self.spec for key in ("hconcat", "concat")) or any(
            "hconcat" in part for part in self.spec.get("vconcat", ())
        )

    @property
    def beside(self) -> int:
        """How many panels beside each other could stand alone; 0 where there are none."""
        panels = self.spec.get("hconcat", ())
        alone = all("params" not in part and all(_has_names(layer) for layer in _layers(part)) for part in panels)
        nested = any(key in part for part in panels for key in _GROUPS)
        return len(panels) if alone and not nested else 0

    def panels(self) -> list[Spec]:
        """Specifications of the panels that are drawn alone; the whole where there are none."""
        parts = self.spec["hconcat"] if self.beside else self.spec.get("vconcat")
        if parts is None:
            return [self.spec]
        rows = self.spec.get("datasets", {})
        panels = []
        for part in parts:
            # Each alone: every set of rows that comes with a panel is converted and sent.
            own = {name: rows[name] for name in _all_data_names(part) if name in rows}
            panels.append({"$schema": self.spec["$schema"], "datasets": own, **part})
        return panels

    def rows(self) -> pd.DataFrame:
        """Every figure that is drawn, tidy; `figure` is the title of its axis."""
        datasets = self.spec.get("datasets", {})
        parts = []
        for view in _views(self.spec):
            figure = _axis_title(view)
            for name in dict.fromkeys(_data_names(view)):
                rows = datasets.get(name, [])
                if rows and "mean" in rows[0]:
                    frame = pd.DataFrame(rows)
                    frame.insert(0, "figure", figure)
                    parts.append(frame)
        if not parts:
            return pd.DataFrame()
        whole = pd.concat(parts, ignore_index=True).drop_duplicates(ignore_index=True)
        return whole.drop(columns=[name for name in ("order", "place", "line") if name in whole])


def resized(plain: Spec, width: int) -> Spec:
    """The specification with panels side by side that fill `width` pixels, their axes and legends included."""
    if "vconcat" in plain:
        return {**plain, "vconcat": [resized(part, width) for part in plain["vconcat"]]}
    key = "hconcat" if "hconcat" in plain else "concat"
    if key not in plain:
        return plain
    held = plain[key]
    across = len(held) if key == "hconcat" else min(plain.get("columns", len(held)), len(held))
    text = json.dumps(held)
    axes = sum(_AXIS if all(_has_names(layer) for layer in _layers(part)) else _GAP for part in held[:across])
    room = width - axes - (_LEGEND if "gradientLength" in text else 0) - (_NAMES if "labelLimit" in text else 0)
    drawn = sum(_width(part) for part in held[:across])
    factor = room / drawn if drawn else 1.0
    return {**plain, key: [_scaled(part, factor) for part in held]}


def folded(plain: Spec, line: int) -> Spec:
    """The specification with long legends in lines of so many characters below each other, so that a narrow card holds them."""
    changed = dict(plain)
    for key in (*_GROUPS, "layer"):
        if key in plain:
            changed[key] = [folded(part, line) for part in plain[key]]
    if "encoding" in plain:
        changed["encoding"] = {name: _folded_legend(channel, line) for name, channel in plain["encoding"].items()}
    return changed


def _folded_legend(channel: Any, line: int) -> Any:
    legend = channel.get("legend") if isinstance(channel, Mapping) else None
    names = (channel.get("scale") or {}).get("domain") if legend else None
    if not legend or legend.get("orient") != "top" or not isinstance(names, list):
        return channel
    lengths = [len(str(name)) + _SYMBOL for name in names]
    columns = next((count for count in range(len(names), 1, -1) if count * max(lengths) <= line), 1)
    fits = sum(lengths) <= line
    return channel if fits else {**channel, "legend": {**legend, "columns": columns}}


def _scaled(view: Spec, factor: float) -> Spec:
    changed = dict(view)
    if isinstance(view.get("width"), int | float):
        changed["width"] = round(view["width"] * factor)
    for key in (*_GROUPS, "layer"):
        if key in view:
            changed[key] = [_scaled(part, factor) for part in view[key]]
    return changed


def _width(view: Mapping[str, Any]) -> float:
    if "hconcat" in view:
        return sum(_width(part) for part in view["hconcat"])
    if "vconcat" in view:
        return max(_width(part) for part in view["vconcat"])
    return float(view.get("width", 0))


def _has_names(view: Mapping[str, Any]) -> bool:
    """Whether a panel shows the names of its own rows, instead of borrowing those of the panel beside it."""
    y = view.get("encoding", {}).get("y", {})
    if not isinstance(y, Mapping) or "axis" not in y:
        return True
    return y["axis"] is not None and y["axis"].get("labels") is not False


def _views(view: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The panels that are not made of panels."""
    parts = [part for key in _GROUPS for part in view.get(key, ())]
    if not parts:
        yield view
    for part in parts:
        yield from _views(part)


def _layers(view: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield view
    for part in view.get("layer", ()):
        yield from _layers(part)


def _data_names(view: Mapping[str, Any]) -> Iterator[str]:
    for part in _layers(view):
        name = part.get("data", {}).get("name") if isinstance(part.get("data"), Mapping) else None
        if name:
            yield name


def _all_data_names(view: Mapping[str, Any]) -> Iterator[str]:
    """Of a panel, or of all those that it is made of."""
    yield from _data_names(view)
    for key in _GROUPS:
        for part in view.get(key, ()):
            yield from _all_data_names(part)


def _axis_title(view: Mapping[str, Any]) -> str:
    """What the panel shows: the title of the encoding of `mean`."""
    for part in _layers(view):
        for encoding in part.get("encoding", {}).values():
            if isinstance(encoding, Mapping) and encoding.get("field") == "mean":
                title = encoding.get("title") or (encoding.get("legend") or {}).get("title")
                if title:
                    return " ".join(title) if isinstance(title, list) else str(title)
    title = view.get("title", "")
    return str(title.get("text", "") if isinstance(title, Mapping) else title)
