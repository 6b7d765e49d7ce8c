"""A figure, or one for every step, against a limit: decided on the interval."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from driftscope.findings.words import listed, plain, with_interval
from driftscope.stats.intervals import MIN_PROMPTS, Interval

Verdict = Literal["passed", "failed", "unknown"]


@dataclass(frozen=True)
class Figure:
    """An interval, at a step where it belongs to one; None where it could not be measured."""

    interval: Interval | None
    step: int | None = None


@dataclass(frozen=True)
class Bound:
    """Figures that must lie at or within `limit`."""

    label: str
    """As the subject of a sentence: `norm growth`."""
    limit: float
    figures: tuple[Figure, ...]
    kind: Literal["at most", "at least"] = "at most"
    unit: str = ""
    prompts: int = 0
    sign: bool = False
    """Whether a plus is printed."""

    def judge(self, figure: Figure) -> Verdict:
        """`passed` or `failed` where the whole interval is on one side of the limit."""
        interval = figure.interval
        if interval is None or interval.low is None or interval.high is None:
            return "unknown"
        good, bad = (interval.high, interval.low) if self.kind == "at most" else (interval.low, interval.high)
        within = (lambda end: end <= self.limit) if self.kind == "at most" else (lambda end: end >= self.limit)
        return "passed" if within(good) else "unknown" if within(bad) else "failed"

    @property
    def verdict(self) -> Verdict:
        """One figure that fails is enough to fail; all must pass to pass."""
        return worst(self.judge(figure) for figure in self.figures)

    @property
    def offending_step(self) -> int | None:
        """The first step that fails, else the first that is unknown."""
        for verdict in ("failed", "unknown"):
            for figure in self.figures:
                if figure.step is not None and self.judge(figure) == verdict:
                    return figure.step
        return None

    @property
    def sentence(self) -> str:
        """What is beyond the limit, or why nobody can tell; with the figures."""
        if not self.figures:
            return f"{self.label}: nothing to judge"
        limit = f"{self.kind} {plain(self.limit, sign=self.sign)}{self.unit}"
        verdict = self.verdict
        shown = [figure for figure in self.figures if self.judge(figure) == verdict]
        told = [self._figure(figure) for figure in ([shown[0], shown[-1]] if len(shown) > 1 else shown)]
        text = f"{self.label} {listed(told)}"
        if verdict == "unknown":
            few = f", intervals need {MIN_PROMPTS}" if self.prompts < MIN_PROMPTS else ""
            count = f"{self.prompts} prompt{'' if self.prompts == 1 else 's'}{few}"
            return f"too few prompts to tell: {text}; expected {limit} ({count})"
        return f"{text}; expected {limit}"

    def _figure(self, figure: Figure) -> str:
        at = "" if figure.step is None else f" at step {figure.step}"
        if figure.interval is None:
            return f"not measurable{at}"
        return f"{with_interval(figure.interval, self.unit, sign=self.sign)}{at}"


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """`failed` before `unknown` before `passed`."""
    found = set(verdicts)
    return "failed" if "failed" in found else "unknown" if "unknown" in found or not found else "passed"


def from_step_2(figures: Sequence[Figure]) -> tuple[Figure, ...]:
    """Without step 1, which every step is compared with."""
    return tuple(figure for figure in figures if figure.step is None or figure.step > 1)
