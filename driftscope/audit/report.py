"""What an audit found, as data: rows of hypotheses, controls, findings with what to do, and the verdict."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from driftscope.audit.controls import Control
from driftscope.audit.decide import Signature, Status
from driftscope.audit.fix import Advice, Fixed, write_fixed
from driftscope.audit.hypotheses import Hypothesis
from driftscope.audit.setting import Setting
from driftscope.audit.static import StaticHint
from driftscope.findings.model import Finding
from driftscope.stats.intervals import Interval

Outcome = Literal["holds", "misconfigured", "cannot tell"]


@dataclass(frozen=True)
class Row:
    """One hypothesis in one round. Differences are to the setting of that round; positive is better."""

    round: int
    code: str
    switch: str
    declared: str
    alternative: str
    status: Status
    reason: str = ""
    """Why it was ruled out, or what makes the status less than it looks."""
    searched: bool = False
    """Chosen for its score on prompts that took no part here."""
    signature: Signature = "none"
    prompts: int = 0
    loss_first: Interval | None = None
    """Fall of the loss at step 1, nats."""
    loss_later: Interval | None = None
    """Mean fall over the steps 2 to 4."""
    agreement_first: Interval | None = None
    """Rise of top-1 agreement, 0 to 1."""
    agreement_later: Interval | None = None
    length: Interval | None = None
    """Rise of accepted tokens per anchor, of at most 4."""
    p_better: float | None = None
    """Against the maximum over all hypotheses of the round."""
    p_worse: float | None = None
    acceptance: tuple[float | None, ...] = ()
    """Drafted conditional acceptance by step; None where too few chains come so far."""

    settled_by: str = ""
    """What would tell it from the declared value, where these texts do not."""
    flag: str = ""
    """The option that runs it, where there is one."""
    slight: bool = False
    """Better beyond chance, at the deciding steps, yet by less than would matter; under 0.01 nats it does not count."""

    @property
    def name(self) -> str:
        return f"{self.switch}: {self.alternative}"

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Fault:
    """A finding with the change that mends it."""

    finding: Finding
    round: int
    switch: str
    declared: str
    alternative: str
    advice: Advice
    choices: tuple[Hypothesis, ...]
    """The alternative, and after it those that the texts cannot tell from it."""

    @property
    def named(self) -> str:
        """The value, or all the values that it may be: "100000 or 500000: these texts cannot tell them apart"."""
        words = [h.alternative if h.switch == self.switch else f"{h.switch} {h.alternative}" for h in self.choices]
        if len(words) == 1:
            return words[0]
        return f"{', '.join(words[:-1])} or {words[-1]} (these texts cannot tell them apart)"

    def to_dict(self) -> dict[str, Any]:
        return {
            **self.finding.to_dict(),
            "round": self.round,
            "switch": self.switch,
            "declared": self.declared,
            "alternative": self.alternative,
            "alike": [h.name for h in self.choices[1:]],
            "fix": self.advice.to_dict(),
        }


@dataclass(frozen=True)
class Baseline:
    """What the declared setting scores. Steps count from 1."""

    loss: tuple[float, ...]
    """Nats by step."""
    agreement: tuple[float, ...]
    """Text-fed top-1 agreement by step."""
    acceptance: tuple[float | None, ...]
    """Drafted conditional acceptance by step."""
    length: float
    """Accepted tokens per anchor, of at most 4."""


@dataclass(frozen=True)
class Audit:
    """One audit. `faults` come in the order in which they were found: the largest first."""

    checkpoint: str
    target: str
    outcome: Outcome
    verdict: str
    """One sentence."""
    prompts: int
    anchors: int
    baseline: Baseline
    controls: tuple[Control, ...]
    """Of the declared setting, and after them those of the corrected one."""
    rows: tuple[Row, ...]
    faults: tuple[Fault, ...]
    static: tuple[Finding, ...]
    """What the files alone give away, where nothing could be measured to answer it."""
    hints: tuple[StaticHint, ...]
    """The same where the measurement gives it no weight."""
    unsettled: tuple[str, ...]
    """What no file says and the measurement cannot settle either."""
    warnings: tuple[str, ...]
    """What was assumed when the checkpoint was opened."""
    seconds: float
    """From the first hypothesis to the last."""
    declared_setting: Setting
    setting: Setting
    """The declared setting with all faults mended."""
    target_config: Any = None
    """The target's transformers config."""

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Measured ones first."""
        return (*(fault.finding for fault in self.faults), *self.static)

    @property
    def exit_code(self) -> int:
        """0 the declared setting holds, 1 with findings, 2 where it cannot be told."""
        return 1 if self.findings else 0 if self.outcome == "holds" else 2

    def write_fix(self, folder: str | Path) -> Fixed:
        """Write a copy of the checkpoint with the faults mended, as far as its layout can say it; CheckpointError where it
        can say none of it."""
        return write_fixed(self.checkpoint, self.setting, folder, self.target_config)

    def row(self, switch: str, alternative: str | None = None, round: int = 1) -> Row:
        """The first row of a switch whose alternative starts with `alternative`. KeyError where there is none."""
        for row in self.rows:
            if (row.round, row.switch) == (round, switch) and row.alternative.startswith(alternative or ""):
                return row
        raise KeyError(f"{switch}: {alternative} in round {round}")

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "checkpoint": self.checkpoint,
            "target": self.target,
            "outcome": self.outcome,
            "verdict": self.verdict,
            "exit_code": self.exit_code,
            "prompts": self.prompts,
            "anchors": self.anchors,
            "declared": asdict(self.baseline),
            "controls": [asdict(control) for control in self.controls],
            "findings": [*(fault.to_dict() for fault in self.faults), *(found.to_dict() for found in self.static)],
            "hypotheses": [row.to_dict() for row in self.rows],
            "hints": [hint.to_dict() for hint in self.hints],
            "unsettled": list(self.unsettled),
            "warnings": list(self.warnings),
            "seconds": self.seconds,
        }
