"""A word of warning while there is time to act."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from driftscope.findings.thresholds import Thresholds, load
from driftscope.findings.words import plain

_REMEDIES = {
    "DS101": "the published remedy is a post-norm carry (norm_output)",
    "DS102": "the published remedy is FC-norm and a post-norm carry",
    "DS104": "the published remedy is FC-norm and a post-norm carry; more unrolled steps help as well",
}


@dataclass(frozen=True)
class _Limit:
    name: str
    label: str
    value: float
    code: str
    above: bool = True

    def crossed(self, value: float) -> bool:
        return value > self.value if self.above else value < self.value


class EarlyWarning:
    """Tells once when a figure of `drift_metrics` is beyond its limit at `patience` evaluations in a row, and again only
    after it was back within.

    The limits are those of the findings (`[tool.driftscope.thresholds]`); those of the slopes are the sizes of the
    findings, spread over the steps of a chain of `depth`.
    """

    def __init__(
        self,
        depth: int = 8,
        *,
        thresholds: Thresholds | Path | None = None,
        patience: int = 2,
        prefix: str = "driftscope/",
    ) -> None:
        values = thresholds if isinstance(thresholds, Thresholds) else load(thresholds)
        steps = max(depth - 1, 1)
        self.patience, self.prefix = patience, prefix
        self._limits = (
            _Limit("norm_growth", f"the carried state grows over {depth} steps,", values["norm_growth"], "DS101"),
            _Limit(
                "self_excess_slope", "its own tokens draw more at every step,", values["self_excess"] / steps, "DS102"
            ),
            _Limit(
                "sink_slope", "the sink loses attention at every step,", -values["sink_loss"] / steps, "DS102", False
            ),
            _Limit(
                "noise_half_point",
                "half of the length is lost at little noise,",
                values["noise_half_point"],
                "DS104",
                False,
            ),
        )
        self._times: dict[str, int] = {}

    def __call__(self, metrics: Mapping[str, float], step: int | None = None) -> list[str]:
        """New warnings, one line each. A figure that is absent neither warns nor clears."""
        told = []
        for limit in self._limits:
            value = metrics.get(self.prefix + limit.name)
            if value is None or not math.isfinite(value):
                continue
            times = self._times.get(limit.name, 0) + 1 if limit.crossed(value) else 0
            self._times[limit.name] = times
            if times == self.patience:
                told.append(self._line(limit, value, step))
        return told

    def _line(self, limit: _Limit, value: float, step: int | None) -> str:
        at = "" if step is None else f"step {step}: "
        side = "above" if limit.above else "below"
        return (
            f"{at}{limit.label} {limit.name} {plain(value, 3)}, {side} {plain(limit.value, 3)} at {self.patience} "
            f"evaluations in a row; {_REMEDIES[limit.code]} (driftscope explain {limit.code})"
        )
