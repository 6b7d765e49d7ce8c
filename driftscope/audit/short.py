"""The short audit: a few hypotheses on captures that are there anyway, in seconds, for the top of another report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any

import numpy as np

from driftscope.audit.batches import prepare
from driftscope.audit.decide import Limits
from driftscope.audit.hypotheses import Hypothesis, TargetFacts, hypotheses
from driftscope.audit.refusal import check_audited
from driftscope.audit.report import Row
from driftscope.audit.rounds import Course, run_round
from driftscope.audit.run import facts
from driftscope.audit.score import Runner
from driftscope.audit.setting import Setting
from driftscope.audit.unsettled import unsettled
from driftscope.audit.verdict import faults_of
from driftscope.captures.capture import Capture
from driftscope.chain.pair import Pair
from driftscope.errors import DriftscopeError
from driftscope.findings.model import Finding

SWITCHES = (
    "carry", "aux_boundaries", "rope.theta", "rope.scaling", "vocab_map", "residual", "norms before fc", "feature_source",
)  # fmt: skip
"""Where the faults of the field are."""
MIN_PROMPTS = Limits().prompts
_ANCHORS = 8
_PROMPTS = 24


@dataclass(frozen=True)
class ShortAudit:
    """What the short audit saw. `finding` is None where the declared setting holds or nothing can be told."""

    warnings: tuple[str, ...] = ()
    """One line for the finding, or for what no file says and the texts cannot settle."""
    finding: Finding | None = None
    decided: bool = False
    """Whether there were prompts enough and the drafter beat its negative controls."""
    reason: str = ""
    """Why nothing is decided."""
    rows: tuple[Row, ...] = ()
    prompts: int = 0
    anchors: int = 0

    @property
    def better(self) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if row.status == "better")

    def to_dict(self) -> dict[str, Any]:
        """As in `run.json`."""
        return {
            "decided": self.decided,
            "reason": self.reason,
            "warnings": list(self.warnings),
            "prompts": self.prompts,
            "anchors": self.anchors,
            "hypotheses": [row.to_dict() for row in self.rows],
        }


def short_boundaries(pair: Pair) -> tuple[int, ...]:
    """Boundaries to capture beside the drafter's own, so that the short audit can shift them by one."""
    setting, target = Setting(pair.config, pair.checkpoint.weights), facts(pair.target, pair.checkpoint.raw_config)
    return tuple(sorted({b for h in _tried(setting, target) for b in h.apply(setting).boundaries(target.num_layers)}))


def short_audit(pair: Pair, captures: Sequence[Capture], *, limits: Limits | None = None) -> ShortAudit:
    """Try the commonest faults on at most 24 of the captures, 8 anchors each, one round.

    Hypotheses that read boundaries which the captures lack are left out. Each warning is one line and names the flag.
    """
    limits = limits or Limits()
    try:
        check_audited(pair.config)
    except DriftscopeError as error:
        return ShortAudit(reason=str(error))
    # Captures of an engine may lack the final states, and with them the target's distribution.
    captures = [record for record in captures if bool(record.final[-1].isfinite().all())]
    places = np.linspace(0, len(captures) - 1, min(_PROMPTS, len(captures))).round().astype(int)
    material = prepare(pair.target, [captures[i] for i in places], anchors=_ANCHORS)
    count = len(material.captures)
    if count < limits.prompts:
        reason = f"{count} usable prompts are too few, {limits.prompts} with final states and outside loops are needed"
        return ShortAudit(reason=reason, prompts=count)
    target = facts(pair.target, pair.checkpoint.raw_config)
    runner = Runner(material, target.embedding, target.head, pair.target.dtype)
    setting = runner.cast(Setting(pair.config, pair.checkpoint.weights))
    held = set.intersection(*(set(record.boundaries) for record in material.captures))
    tried = [h for h in _tried(setting, target) if set(h.apply(setting).boundaries(target.num_layers)) <= held]
    searched = np.zeros(count, bool)
    found = run_round(1, setting, tried, runner, limits, Course(searched, monotonic))
    seen = ShortAudit(rows=tuple(found.rows), prompts=count, anchors=material.anchors)
    nothing = "the drafter does no better than its negative controls"
    if found.winner is None or found.winner_row is None:
        decided = all(control.beaten for control in found.controls)
        # Few texts settle little by themselves; what they cannot settle by their length is worth a line.
        rope = [row for row in found.rows if row.switch.startswith("rope.")]
        open_ones = unsettled(pair.checkpoint, rope) if decided else ()
        return replace(seen, warnings=open_ones, decided=decided, reason="" if decided else nothing)
    scores, _ = runner.run(found.winner.apply(setting), depth=1)
    # The winner, too, must do better than a drafter that knows nothing.
    top = max(control.agreement for control in found.controls)
    if float(scores.agreement[:, 0].mean()) < top + limits.agreement:
        return replace(seen, reason=nothing)
    (fault,) = faults_of(pair, [found])
    option = fault.advice.flag
    row = found.winner_row
    later = found.winner.reach == "later"
    rise = row.agreement_later if later else row.agreement_first
    assert rise is not None
    text = (
        f"{row.switch} may be wrong: with {fault.named} instead of {row.declared} the drafter agrees with the target"
        f" {rise.mean:.0%} more often {'at steps 2 to 4' if later else 'at step 1'} ({row.code}"
        f"{'; ' + option if option else ''}; `driftscope audit` tells more)"
    )
    return replace(seen, warnings=(text,), finding=fault.finding, decided=True)


def _tried(setting: Setting, target: TargetFacts) -> list[Hypothesis]:
    return [
        h
        for h in hypotheses(setting, target)
        if h.switch in SWITCHES
        and not h.ruled_out
        and "order" not in h.alternative
        and "in wide use" not in h.alternative
    ]
