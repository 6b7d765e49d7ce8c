"""A headline figure of a run in a form that can be compared: what it is, and its parts per prompt."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from driftscope.stats.contrasts import Figure, ratio
from driftscope.stats.intervals import Floats

Better = Literal["lower", "higher", ""]


@dataclass(frozen=True)
class Quantity:
    """One figure. On a `log` scale differences are factors."""

    name: str
    short: str
    """For tables."""
    label: str
    unit: str
    """`x`, `share`, `tokens`, `share a step`, `alpha`."""
    scale: Literal["plain", "log"] = "plain"
    better: Better = ""
    key: bool = False
    """Whether the headline speaks of it."""


@dataclass(frozen=True)
class Sample:
    """A quantity on one run: arrays [prompt] and the figure that their sums give, a log on the log scale."""

    quantity: Quantity
    parts: tuple[Floats, ...]
    figure: Figure = field(default=ratio, compare=False)
