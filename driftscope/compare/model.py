"""What a comparison says."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from driftscope.compare.design import Design
from driftscope.compare.quantity import Quantity
from driftscope.stats.intervals import Interval

if TYPE_CHECKING:
    import pandas as pd

SCHEMA_VERSION = 1
_ROUNDING = 1e-9
Direction = Literal["up", "down", "none", "unknown"]


@dataclass(frozen=True)
class Effect:
    """A contrast between runs; on the log scale a factor, whose null is 1."""

    name: str
    """`difference`, `fc_norm`, `carry` or `interaction`."""
    given: str
    """Under which level of the other switch; empty for the average over both, and for a difference."""
    interval: Interval
    null: float = 0.0

    @property
    def direction(self) -> Direction:
        """`none` if the interval holds the null, `unknown` without an interval."""
        low, high = self.interval.low, self.interval.high
        if low is None or high is None:
            return "unknown"
        # Equal runs differ by rounding.
        return "up" if low > self.null + _ROUNDING else "down" if high < self.null - _ROUNDING else "none"


@dataclass(frozen=True)
class Compared:
    """One quantity on every run that has it."""

    quantity: Quantity
    values: dict[str, Interval]
    """By run; a run in which it was not measured is absent."""
    differences: dict[str, Effect] = field(default_factory=dict)
    """By run: its difference to the first run."""
    effects: tuple[Effect, ...] = ()
    """Of a factorial: both simple effects and the average of each switch, and the interaction."""
    sentence: str = ""
    cells: dict[str, Interval] = field(default_factory=dict)
    """By cell of the design, the mean over its trainings with an interval over seeds and prompts; where a cell has several."""

    def effect(self, name: str, given: str = "") -> Effect | None:
        """The effect of that name under a level of the other switch."""
        return next((part for part in self.effects if part.name == name and part.given == given), None)


@dataclass(frozen=True)
class Comparison:
    """Runs of different drafters on the same captures."""

    runs: tuple[str, ...]
    folders: tuple[str, ...]
    design: Design
    target: str
    prompts: int
    depth: int
    headline: str
    compared: tuple[Compared, ...]
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "schema_version": SCHEMA_VERSION,
            "target": self.target,
            "prompts": self.prompts,
            "depth": self.depth,
            "design": self.design.kind,
            "seeds": self.design.seeds,
            "factor": self.design.factor or None,
            "runs": [
                {"name": name, "folder": folder, "fc_norm": cell[0], "carry": self._carry(place)}
                for place, (name, folder, cell) in enumerate(
                    zip(self.runs, self.folders, self.design.cells, strict=True)
                )
            ],
            "headline": self.headline,
            "notes": list(self.notes),
            "quantities": [_quantity(part) for part in self.compared],
        }

    def _carry(self, place: int) -> str:
        return "none" if place in self.design.at_once else "post" if self.design.cells[place][1] else "pre"

    def values_frame(self) -> pd.DataFrame:
        """Tidy: a row per quantity and run, with `mean`, `low` and `high`."""
        rows = [
            {**_about(part.quantity), "run": run, **interval.to_dict()}
            for part in self.compared
            for run, interval in part.values.items()
        ]
        return _frame(rows, ["quantity", "label", "unit", "run", "mean", "low", "high"])

    def differences_frame(self) -> pd.DataFrame:
        """Tidy: a row per quantity and run other than the first; factors on the log scale."""
        rows = [
            {**_about(part.quantity), "run": run, "reference": self.runs[0], **_effect(effect)}
            for part in self.compared
            for run, effect in part.differences.items()
        ]
        return _frame(
            rows, ["quantity", "label", "unit", "run", "reference", "mean", "low", "high", "null", "direction"]
        )

    def effects_frame(self) -> pd.DataFrame:
        """Tidy: a row per quantity and effect of a factorial."""
        rows = [
            {**_about(part.quantity), "effect": effect.name, "given": effect.given, **_effect(effect)}
            for part in self.compared
            for effect in part.effects
        ]
        return _frame(
            rows, ["quantity", "label", "unit", "effect", "given", "mean", "low", "high", "null", "direction"]
        )


def _quantity(part: Compared) -> dict[str, Any]:
    about = dataclasses.asdict(part.quantity)
    return {
        **about,
        "values": {run: interval.to_dict() for run, interval in part.values.items()},
        "differences": {run: _effect(effect) for run, effect in part.differences.items()},
        **({"cells": {cell: interval.to_dict() for cell, interval in part.cells.items()}} if part.cells else {}),
        "effects": [{"effect": effect.name, "given": effect.given, **_effect(effect)} for effect in part.effects],
        "sentence": part.sentence,
    }


def _about(quantity: Quantity) -> dict[str, Any]:
    return {"quantity": quantity.name, "label": quantity.label, "unit": quantity.unit}


def _effect(effect: Effect) -> dict[str, Any]:
    return {**effect.interval.to_dict(), "null": effect.null, "direction": effect.direction}


def _frame(rows: list[dict[str, Any]], columns: list[str]) -> pd.DataFrame:
    import pandas as pd

    frame = pd.DataFrame(rows, columns=columns)
    numbers = [name for name in ("mean", "low", "high", "null") if name in columns]
    return frame.astype(dict.fromkeys(numbers, float))
