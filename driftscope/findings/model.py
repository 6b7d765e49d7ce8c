"""What a finding is made of."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from driftscope.findings.cost import DriftCost
from driftscope.stats.intervals import Interval

Kind = Literal["drift", "checkpoint", "note", "engine"]
_KINDS: dict[str, Kind] = {"1": "drift", "2": "checkpoint", "3": "note", "4": "engine"}


@dataclass(frozen=True)
class Definition:
    """What a code stands for; `driftscope explain` prints it."""

    code: str
    title: str
    meaning: str
    """What is wrong, for a reader who meets the code for the first time."""
    measured: str
    """What is compared with what."""
    limits: str
    """What the finding, or its absence, does not say."""
    advice: tuple[str, ...]
    thresholds: tuple[str, ...] = ()
    """Names of those that it is held against."""
    probes: tuple[str, ...] = ()
    """Without one of these the rule is silent."""
    sources: tuple[str, ...] = ()

    @property
    def kind(self) -> Kind:
        return kind_of(self.code)


@dataclass(frozen=True)
class Threshold:
    """One limit. Values must lie strictly between `above` and `below`."""

    name: str
    default: float
    meaning: str
    reason: str
    above: float = 0.0
    below: float = math.inf


@dataclass(frozen=True)
class Evidence:
    """One figure behind a finding, with its 95% interval where it has one."""

    name: str
    value: float
    low: float | None = None
    high: float | None = None
    unit: str = ""
    """`x` for a ratio, `share` for 0 to 1, otherwise as written."""
    over: str = ""
    """The denominator, in words: `16 prompts, 384 anchors`."""
    threshold: float | None = None
    """The limit that this figure is beyond."""

    @classmethod
    def of(cls, name: str, interval: Interval, **rest: Any) -> Evidence:
        return cls(name, interval.mean, interval.low, interval.high, **rest)


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong, or worth knowing (DS3xx)."""

    code: str
    title: str
    statement: str
    """One sentence with its figures."""
    evidence: tuple[Evidence, ...] = ()
    advice: tuple[str, ...] = ()
    """What to try."""
    step: int | None = None
    """The first step of the chain that shows it, where it has one."""
    note: bool = False
    """Worth knowing, and nothing is wrong: what moves without a cost."""

    @property
    def kind(self) -> Kind:
        return "note" if self.note else kind_of(self.code)

    def to_dict(self) -> dict[str, Any]:
        """As in `run.json`; the advice is called `try` there."""
        content = dataclasses.asdict(self)
        return {
            "code": self.code,
            "kind": self.kind,
            "title": self.title,
            "statement": self.statement,
            "step": self.step,
            "evidence": list(content["evidence"]),
            "try": list(self.advice),
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Finding:
        """The finding that `to_dict` wrote."""
        return cls(
            content["code"],
            content["title"],
            content["statement"],
            # JSON has null for what is not finite.
            tuple(
                Evidence(**{**part, "value": math.nan if part["value"] is None else part["value"]})
                for part in content.get("evidence", ())
            ),
            tuple(content.get("try", ())),
            content.get("step"),
            content.get("kind") == "note" and kind_of(content["code"]) != "note",
        )


@dataclass(frozen=True)
class NotMeasured:
    """A rule that could not be asked, and why."""

    code: str
    reason: str


Outcome = Finding | NotMeasured | None
Rule = Callable[[Any], Outcome]
"""What was measured (`driftscope.findings.Measured`) -> a finding, why it could not be asked, or None where the figures are
within the thresholds."""


@dataclass(frozen=True)
class Coded:
    """All that makes a finding: what it means, the rule that looks for it, and the thresholds that it brings."""

    definition: Definition
    rule: Rule | None = None
    """None: found elsewhere, as an audit does."""
    thresholds: tuple[Threshold, ...] = ()


@dataclass(frozen=True)
class Assessment:
    """What the rules say on one run."""

    findings: tuple[Finding, ...]
    unmeasured: tuple[NotMeasured, ...]
    clear: tuple[str, ...]
    """Codes that were measured and are not beyond their threshold."""
    judged: bool
    """Whether enough was measured to call a run without findings healthy."""
    onsets: Mapping[str, int | str] = field(default_factory=dict)
    """The summary's onsets, at the thresholds in force."""
    spreads: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The summary's `onset_spread`, at those thresholds."""
    cost: DriftCost | None = None
    """What drift costs, where that was measured."""
    withheld: str = ""
    """Why nothing is judged although it was measured (`driftscope.findings.withheld`); findings of drift are left out."""

    @property
    def wrong(self) -> tuple[Finding, ...]:
        """The findings without the notes."""
        return tuple(finding for finding in self.findings if finding.kind != "note")

    @property
    def exit_code(self) -> int:
        """0 healthy, 1 with findings other than notes, 2 where too little could be measured to say."""
        return 1 if self.wrong else 0 if self.judged else 2

    def at_thresholds(self, summary: Mapping[str, Any]) -> dict[str, Any]:
        """The summary with the onsets at the thresholds in force."""
        spreads = {name: dict(spread) for name, spread in self.spreads.items()}
        return {**summary, "onset": dict(self.onsets), "onset_spread": spreads}

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "findings": [finding.to_dict() for finding in self.findings],
            "not_measured": [dataclasses.asdict(part) for part in self.unmeasured],
            "clear": list(self.clear),
            "exit_code": self.exit_code,
        }


def kind_of(code: str) -> Kind:
    """`drift` of DS1xx, `checkpoint` of DS2xx, `note` of DS3xx, `engine` of DS4xx."""
    return _KINDS[code[2]]


def exit_code(findings: Sequence[Finding | Mapping[str, Any]]) -> int:
    """1 with a finding that is no note, else 0. `Assessment.exit_code` also knows whether enough was measured."""
    kinds = (part.kind if isinstance(part, Finding) else part.get("kind", kind_of(part["code"])) for part in findings)
    return int(any(kind != "note" for kind in kinds))
