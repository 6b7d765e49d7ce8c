"""What drift costs, as evidence for the verdict and the rules: the figures of the cost probe, None where it was not run.

The figures are those of the JSON of a run, `drift_cost` and `rejections`; nothing is worked out here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from driftscope.stats.intervals import Interval

PATHS = {"state": "the carried state", "pattern": "attention", "values": "the values of its own rows"}
"""What a chain feeds itself with, in words."""
PARTS = {"state_rms": "its norm alone", "state_direction": "its direction alone"}
REASONS = {
    "vocabulary": "the draft vocabulary lacks the token",
    "target_undecided": "the target itself is undecided",
    "drafter": "the drafter is wrong with real states too",
    "state": "the carried state has drifted",
    "pattern": "attention has drifted",
    "values": "the values of its own rows have drifted",
    "several": "several of them have drifted together",
}
"""Why a chain is rejected."""
DRIFT = ("state", "pattern", "values", "several")
PRACTICAL_TOKENS = 0.05
"""Accepted tokens a round: a smaller cost is not worth a training."""
Told = Literal["costs", "gains", "nothing", "unknown", "few"]


@dataclass(frozen=True)
class PathCost:
    """What one path costs: patched alone, patched last, and as its Shapley value."""

    alone: Interval
    last: Interval
    shapley: Interval

    @property
    def costs(self) -> bool:
        """Whether its interval lies above 0."""
        return told(self.shapley) == "costs"

    @property
    def together(self) -> bool:
        """Whether it works together with the other paths: alone and last differ in sign, and one of the signs is known."""
        known = {told(self.alone), told(self.last)} & {"costs", "gains"}
        return bool(known) and self.alone.mean * self.last.mean < 0


@dataclass(frozen=True)
class DriftCost:
    """Accepted tokens per anchor, as drafted and with everything real; their difference is the cost."""

    actual: Interval
    undrifted: Interval
    cost: Interval
    share: Interval | None = None
    """The cost over the undrifted length."""
    paths: Mapping[str, PathCost] = field(default_factory=dict)
    """By the names of PATHS; empty for a block, which cannot be split."""
    parts: Mapping[str, PathCost] = field(default_factory=dict)
    """Of the state, by the names of PARTS, where it was split."""
    rejections: Mapping[str, Interval] = field(default_factory=dict)
    """Share of the rejected chains by reason, by the names of REASONS."""
    depth: int | None = None
    """K, the drafted tokens."""
    prompts: int | None = None

    @property
    def told(self) -> Told:
        """Whether drift costs anything: see `told`."""
        return told(self.cost)

    def costly(self, *paths: str) -> list[str]:
        """Those of these paths, or of all, through which drift costs something; the dearest first."""
        found = [name for name in (paths or PATHS) if name in self.paths and self.paths[name].costs]
        return sorted(found, key=lambda name: -self.paths[name].shapley.mean)

    @classmethod
    def from_summary(cls, summary: Mapping[str, Any]) -> DriftCost | None:
        """From `drift_cost` and `rejections` of a summary; None where the cost was not measured."""
        content = summary.get("drift_cost") or {}
        whole = {name: _interval(content.get(name)) for name in ("actual", "undrifted", "cost", "share")}
        actual, undrifted, cost = whole["actual"], whole["undrifted"], whole["cost"]
        if actual is None or undrifted is None or cost is None:
            return None
        shares = {name: _interval(part) for name, part in (summary.get("rejections") or {}).items() if name in REASONS}
        return cls(
            actual,
            undrifted,
            cost,
            whole["share"],
            {name: path for name in PATHS if (path := _path(content.get(name))) is not None},
            {name: path for name in PARTS if (path := _path(content.get(name))) is not None},
            {name: share for name, share in shares.items() if share is not None},
            content.get("depth") or len(summary.get("steps") or ()) or None,
            content.get("prompts"),
        )


def told(figure: Interval) -> Told:
    """`costs` or `gains` where the interval excludes 0, `nothing` where it holds 0 and lies below the practical size, else
    `unknown`; `few` without an interval."""
    if figure.low is None or figure.high is None:
        return "few"
    if figure.low > 0:
        return "costs"
    if figure.high < 0:
        return "gains"
    return "nothing" if figure.high < PRACTICAL_TOKENS else "unknown"


def costs_nothing(cost: DriftCost | None, path: str) -> bool:
    """Whether the cost was measured and its interval does not lie above 0 in that path."""
    return cost is not None and path in cost.paths and told(cost.paths[path].shapley) not in ("costs", "few")


def _path(content: Any) -> PathCost | None:
    if not isinstance(content, Mapping):
        return None
    parts = [_interval(content.get(name)) for name in ("alone", "last", "shapley")]
    alone, last, shapley = parts
    if alone is None or last is None or shapley is None:
        return None
    return PathCost(alone, last, shapley)


def _interval(content: Any) -> Interval | None:
    if not isinstance(content, Mapping) or content.get("mean") is None:
        return None
    return Interval(content["mean"], content.get("low"), content.get("high"))
