"""What the rules read: a run with its summary, and the per-prompt figures behind it, each worked out once."""

from __future__ import annotations

import math
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from driftscope import stats
from driftscope.findings.cost import DriftCost
from driftscope.findings.model import Evidence
from driftscope.findings.thresholds import DEFAULTS, Thresholds
from driftscope.findings.words import counted
from driftscope.runs.summary import FeedFigures, clean_figures, clean_rows, onset_spreads, onsets, spread_content
from driftscope.stats.intervals import Floats, Interval

if TYPE_CHECKING:
    from driftscope.runs.run import Run

_LIMITS = {"norm_up": "norm_growth", "displaced": "displacement", "self_up": "self_excess", "sink_down": "sink_loss"}
"""Onset -> its threshold."""
AT_ONCE = "all steps are drafted at once, nothing is carried from one to the next"


class Measured:
    """A run under given thresholds; `depth` is that of `Run.summary`."""

    def __init__(
        self,
        run: Run,
        thresholds: Thresholds = DEFAULTS,
        depth: int | None = None,
        resamples: int = stats.RESAMPLES,
    ) -> None:
        self.run = run
        self.thresholds = thresholds
        self.depth = depth
        self.resamples = resamples

    @cached_property
    def summary(self) -> dict[str, Any]:
        return self.run.summary(self.depth)

    @property
    def switches(self) -> dict[str, Any]:
        return self.run.info.checkpoint.switches

    @property
    def at_once(self) -> bool:
        """Whether all steps are drafted at once, so that there is no step-to-step drift to find."""
        return self.switches.get("carry") == "none"

    @property
    def post_norm(self) -> bool:
        """Whether the carry is normalised."""
        return self.switches.get("carry") == "post"

    @cached_property
    def anchors(self) -> pd.DataFrame:
        """Rows of the clean drafted chains, loops included: what is counted, not what is measured of the state."""
        return self._rows("drafted", ("near_tie", "accepted", "rank"))

    @cached_property
    def drafted(self) -> FeedFigures | None:
        """Per-prompt figures of the clean drafted chains."""
        return clean_figures(self.run, "drafted", self.depth)

    @cached_property
    def text_fed(self) -> pd.DataFrame:
        """Rows of the undisturbed text-fed chains, without loops; of the depth probe, which goes deeper, if it ran."""
        columns = ["feed", "prompt", "anchor", "step", "loop", "match"]
        rows = self.run.table("anchors", probe="depth", columns=columns)
        rows = rows[rows["feed"] == "text"] if len(rows) else self._rows("text", ("match",))
        return rows[~rows["loop"]]

    @cached_property
    def onsets(self) -> dict[str, stats.Onset]:
        """Onsets at the thresholds in force: the summary's, where those are the defaults."""
        found: dict[str, stats.Onset] = dict(self.summary["onset"])
        if self._changed and self.drafted is not None:
            found |= onsets(self.drafted, practical=self._changed, resamples=self.resamples)
        return found

    @cached_property
    def spreads(self) -> dict[str, dict[str, Any]]:
        """`step`, `low` and `high` of each onset, at the thresholds in force."""
        told: dict[str, dict[str, Any]] = dict(self.summary["onset_spread"])
        changed = {name: onset for name, onset in self.onsets.items() if name in self._changed}
        if changed and self.drafted is not None:
            found = onset_spreads(self.drafted, changed, practical=self._changed, resamples=self.resamples)
            told = {name: part for name, part in told.items() if name not in changed} | spread_content(changed, found)
        return told

    @cached_property
    def _changed(self) -> dict[str, float]:
        """The sizes of onsets whose threshold is not the default."""
        sizes = {key: self.thresholds[name] for key, name in _LIMITS.items() if self.thresholds.changed(name)}
        return {key: math.log(size) if key == "norm_up" else size for key, size in sizes.items()}

    @cached_property
    def cost(self) -> DriftCost | None:
        """What drift costs, where the cost probe was run."""
        return DriftCost.from_summary(self.summary)

    @property
    def prompts(self) -> int:
        """Prompts with a clean measurement outside loops."""
        return 0 if self.drafted is None else len(self.drafted.prompts)

    @cached_property
    def over(self) -> str:
        """The denominator of the default figures, in words."""
        anchors = 0 if self.drafted is None else int(self.drafted.anchors[:, 0].sum())
        return f"{counted(self.prompts, 'prompt')}, {counted(anchors, 'anchor')}"

    @property
    def few(self) -> str:
        """Why there are no intervals, where that is for want of prompts."""
        if self.prompts >= stats.MIN_PROMPTS:
            return ""
        return f"{counted(self.prompts, 'prompt')}, intervals need {stats.MIN_PROMPTS}"

    def _rows(self, feed: str, columns: tuple[str, ...]) -> pd.DataFrame:
        """Clean `anchors` rows of one feed, up to the depth."""
        frame = clean_rows(self.run, feed, columns)
        return frame if self.depth is None else frame[frame["step"] <= self.depth]

    def mean(self, values: Floats) -> Interval | None:
        """Mean over prompts of `values[prompt]`."""
        return stats.bca(np.asarray(values)[:, None], resamples=self.resamples).at(0)

    def evidence(self, name: str, interval: Interval, **rest: Any) -> Evidence:
        """A figure over the default anchors."""
        return Evidence.of(name, interval, **{"over": self.over, **rest})


def interval_of(content: Any) -> Interval | None:
    """A figure of the summary."""
    if not isinstance(content, dict) or content.get("mean") is None:
        return None
    return Interval(content["mean"], content.get("low"), content.get("high"))
