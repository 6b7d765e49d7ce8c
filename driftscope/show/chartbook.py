"""The charts of runs by name, for notebooks: `run.charts.norms()`, `ChartBook([one, other]).attention()`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import partial
from typing import Any

from driftscope.show.charts.base import empty
from driftscope.show.charts.theme import ThemeName, themed
from driftscope.show.drawings import CHARTS, View
from driftscope.show.frames import Runs
from driftscope.show.frames.measured import held_probes
from driftscope.show.gallery import captions_of, shown

_OF_VIEW = {field.name for field in fields(View)} - {"runs"}


class ChartBook:
    """Altair charts of one or several runs, by the names of `driftscope.show.drawings.CHARTS`, by that of a picture of the report
    (`noise_kl`), or by that of a probe: `charts.noise(quantity="kl")`, `charts.norms(unit="l2")`.

    Every chart takes `depth` (only so many steps), `feed` ("drafted" or "text") and `unit` ("rms" or "l2"), and its own options;
    what was not measured is a line of text that says so. `dir(charts)` lists them. `look` is light, dark, or None for Altair's own
    theme.
    """

    def __init__(self, runs: Runs, look: ThemeName | None = "light") -> None:
        self.runs = tuple(runs)
        self.look = look

    def draw(self, name: str, /, *given: Any, **options: Any) -> Any:
        """The chart of this name, with its own options, in order or by name. AttributeError where there is none."""
        view = View(self.runs, **{key: options.pop(key) for key in list(options) if key in _OF_VIEW})
        if name in CHARTS:
            chart = CHARTS[name](view, *given, **options).draw()
        else:
            found = self._captions().get(name)
            if found is None:
                raise AttributeError(f"there is no chart {name}; the charts are {', '.join(self.names())}")
            part = shown(view, found[0], found[1], options)
            chart = empty(f"The probe {found[0]} has no such figures.") if part.rows.empty else part.draw()
        return chart if self.look is None else themed(chart, self.look)

    def names(self) -> list[str]:
        """The charts that there are."""
        return list(dict.fromkeys([*CHARTS, *self._captions()]))

    def _captions(self) -> dict[str, Any]:
        """The pictures of the probes that the runs hold, by names that an attribute may have."""
        held = [(item.name, caption) for item in held_probes(self.runs) for caption in captions_of(item)]
        return {caption.name.replace("-", "_"): (probe, caption) for probe, caption in held}

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_") or name in ("runs", "look") or name not in self.names():
            raise AttributeError(f"there is no chart {name}; the charts are {', '.join(self.names())}")
        return partial(self.draw, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self.names()})
