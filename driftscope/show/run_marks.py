"""One colour and one shape a run, by what the run is and not by where it stands in a list."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from driftscope.runs.schema import RunInfo
from driftscope.show.charts.theme import RUN_COLOURS

SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down")
"""Of Vega-Lite; with them runs differ in print and to the colour-blind."""
_SIGNS = dict(zip(SHAPES, "●■▲◆✚▼", strict=True))
_CORNERS = {("pre", False): 0, ("pre", True): 1, ("post", False): 2, ("post", True): 3}
"""(carry, FC-norm) -> the place in both lists that the first such run takes."""
_OTHERS = 4
_PATHS = {
    "circle": "M8 2a6 6 0 1 0 .01 0z",
    "square": "M2.6 2.6h10.8v10.8H2.6z",
    "triangle-up": "M8 1.6 14.6 13.6H1.4z",
    "diamond": "M8 .8 15.2 8 8 15.2.8 8z",
    "cross": "M5.6 1.5h4.8v4.1h4.1v4.8h-4.1v4.1H5.6v-4.1H1.5V5.6h4.1z",
    "triangle-down": "M8 14.4 14.6 2.4H1.4z",
}
"""In a square of 16."""


@dataclass(frozen=True)
class Mark:
    """How a run looks wherever it is drawn."""

    colour: str
    shape: str

    @property
    def sign(self) -> str:
        """The shape as a character, where only text is possible."""
        return _SIGNS[self.shape]

    def svg(self, size: int = 14) -> str:
        """The mark as an image inside HTML."""
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16" width="{size}" height="{size}"'
            f' style="vertical-align:-.1em"><path d="{_PATHS[self.shape]}" fill="{html.escape(self.colour)}"/></svg>'
        )


def run_marks(infos: Mapping[str, RunInfo]) -> dict[str, Mark]:
    """A mark for every run, by its key.

    Runs are served in the order in which they were started, so that one added later changes no other. A run takes the colour and
    the shape of its corner (carry, FC-norm); where that colour is taken, those that are used least. Up to six runs differ in
    both, up to 36 in the pair.
    """
    used: list[Mark] = []
    found: dict[str, Mark] = {}
    for key in sorted(infos, key=lambda name: (_started(infos[name]), infos[name].checkpoint.sha256, name)):
        place = _corner(infos[key])
        mark = Mark(RUN_COLOURS[place], SHAPES[place])
        if any(mark.colour == other.colour or mark.shape == other.shape for other in used):
            mark = _freest(used, place)
        used.append(mark)
        found[key] = mark
    return {key: found[key] for key in infos}


def remarked(plain: Mapping[str, Any], marks: Mapping[str, Mark]) -> dict[str, Any]:
    """A Vega-Lite specification with the runs of `marks`, by the names that it draws, in their colours and shapes."""
    return {key: _remarked(value, key, marks) for key, value in plain.items()}


def _remarked(value: Any, key: str, marks: Mapping[str, Mark]) -> Any:
    if isinstance(value, list):
        return [_remarked(part, key, marks) for part in value]
    if not isinstance(value, dict) or key == "datasets":
        return value
    names = (value.get("scale") or {}).get("domain") if value.get("field") == "run" else None
    if key in ("color", "shape") and isinstance(names, list) and all(name in marks for name in names):
        drawn = [marks[name].colour if key == "color" else marks[name].shape for name in names]
        return {**value, "scale": {**value["scale"], "range": drawn}}
    return {name: _remarked(part, name, marks) for name, part in value.items()}


def _freest(used: Iterable[Mark], place: int) -> Mark:
    """The pair that is used least, then the colour and the shape; beginning at a place of both lists."""
    held = list(used)

    def cost(mark: Mark) -> tuple[int, int]:
        colours, shapes = (
            sum(getattr(mark, name) == getattr(one, name) for one in held) for name in ("colour", "shape")
        )
        return held.count(mark), colours + shapes

    colours, shapes = (_turned(values, place) for values in (RUN_COLOURS, SHAPES))
    return min((Mark(colour, shape) for colour in colours for shape in shapes), key=cost)


def _turned(values: tuple[str, ...], place: int) -> tuple[str, ...]:
    return values[place:] + values[:place]


def _corner(info: RunInfo) -> int:
    switches = info.checkpoint.switches
    return _CORNERS.get((str(switches.get("carry")), bool(switches.get("fc_norm"))), _OTHERS)


def _started(info: RunInfo) -> str:
    return str(info.provenance.get("started", ""))
