"""What drift costs while it is being measured: the estimate after every prompt, and when it is narrow enough to stop."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from driftscope import stats
from driftscope.figures.cost import COLUMNS, PROBE, cost_interval
from driftscope.runs.run import Run
from driftscope.stats.intervals import Interval
from driftscope.stats.power import prompts_for_width


class RunningCost:
    """Takes the shards of a run one by one. The estimate after the last prompt is the one of the run's summary.

    Args:
        depth: steps of the figures, as in the run's summary.
        until: width of the 95% interval, in accepted tokens, that is narrow enough; None never is.
    """

    def __init__(self, depth: int, until: float | None = None) -> None:
        self.depth, self.until = depth, until
        self.cost: Interval | None = None
        """Cost of drift so far: accepted tokens per anchor; None before any chain was measured."""
        self._prompts: dict[str, pd.DataFrame] = {}

    def go_on(self, run: Run) -> None:
        """Take what a run holds already."""
        if PROBE in run.probes:
            rows = run.table("anchors", PROBE, columns=COLUMNS)
            for prompt, part in rows.groupby("prompt", observed=True):
                self._keep(str(prompt), part)
            self._estimate()

    def seen(self, shard: str, prompt: str, tables: Mapping[str, pd.DataFrame]) -> str:
        """Take a shard; what there is to say after it, "" where it does not change the estimate."""
        if shard != PROBE or "anchors" not in tables:
            return ""
        self._keep(prompt, tables["anchors"])
        self._estimate()
        return self.told

    @property
    def prompts(self) -> int:
        return len(self._prompts)

    @property
    def width(self) -> float | None:
        """Of the 95% interval, in tokens; None where there is none yet."""
        if self.cost is None or self.cost.low is None or self.cost.high is None:
            return None
        return self.cost.high - self.cost.low

    @property
    def enough(self) -> bool:
        """Whether the interval is as narrow as asked for."""
        return self.until is not None and self.width is not None and self.width <= self.until

    @property
    def told(self) -> str:
        """The estimate in words."""
        if self.cost is None:
            return ""
        interval = "" if self.cost.low is None else f" ({self.cost.low:.2f} to {self.cost.high:.2f})"
        return f"drift costs {self.cost.mean:.2f}{interval} tokens, {self.prompts} prompts"

    def conclusion(self, left: int) -> str:
        """Why measuring ended: `left` prompts were not measured. Only where a width was asked for."""
        if self.enough:
            rest = f"; {left} prompts were not needed, --resume measures them too" if left else ""
            return f"stopped by --until {self.until:g}: {self.told}{rest}"
        if self.width is None:
            return f"--until {self.until:g} was not reached: no interval under {stats.MIN_PROMPTS} prompts"
        more = prompts_for_width(self.width, self.prompts, self.until or 0)
        return f"--until {self.until:g} was not reached: {self.told}; about {more} prompts would do"

    def _keep(self, prompt: str, rows: pd.DataFrame) -> None:
        self._prompts[prompt] = rows[list(COLUMNS)]

    def _estimate(self) -> None:
        rows = pd.concat(self._prompts.values(), ignore_index=True)
        self.cost = cost_interval(rows, self.depth)
