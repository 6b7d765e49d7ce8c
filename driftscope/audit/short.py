"""The short audit: a few hypotheses on captures that are there anyway, in seconds, for the top of another report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic

import numpy as np

from driftscope.audit.decide import Limits
from driftscope.audit.hypotheses import Hypothesis, TargetFacts, hypotheses
from driftscope.audit.material import prepare
from driftscope.audit.report import Row
from driftscope.audit.rounds import run_round
from driftscope.audit.run import facts
from driftscope.audit.score import Runner
from driftscope.audit.setting import Setting
from driftscope.captures import Capture
from driftscope.pair import Pair

SWITCHES = ("carry", "aux_boundaries", "rope.theta", "vocab_map", "residual", "norms before fc", "feature_source")
"""Where the faults of the field are."""
_ANCHORS = 8
_PROMPTS = 24


@dataclass(frozen=True)
class ShortAudit:
    """What the short audit saw. `warnings` is empty where the declared setting holds or nothing can be told."""

    warnings: tuple[str, ...]
    better: tuple[Row, ...]
    decided: bool
    """Whether there were prompts enough and the drafter beat its negative controls."""


def short_boundaries(pair: Pair) -> tuple[int, ...]:
    """Boundaries to capture beside the drafter's own, so that the short audit can shift them by one."""
    setting, target = Setting(pair.config, pair.checkpoint.weights), facts(pair.target)
    return tuple(sorted({b for h in _tried(setting, target) for b in h.apply(setting).boundaries(target.num_layers)}))


def short_audit(pair: Pair, captures: Sequence[Capture], *, limits: Limits | None = None) -> ShortAudit:
    """Try the commonest faults on at most 24 of the captures, 8 anchors each, one round.

    Hypotheses that read boundaries which the captures lack are left out. Each warning is one line and names the flag.
    """
    from driftscope.audit.fix import flag

    limits = limits or Limits()
    places = np.linspace(0, len(captures) - 1, min(_PROMPTS, len(captures))).round().astype(int)
    material = prepare(pair.target, [captures[i] for i in places], anchors=_ANCHORS)
    if len(material.captures) < limits.prompts:
        return ShortAudit((), (), False)
    target = facts(pair.target)
    runner = Runner(material, target.embedding, target.head, pair.target.dtype)
    setting = runner.cast(Setting(pair.config, pair.checkpoint.weights))
    held = set.intersection(*(set(record.boundaries) for record in material.captures))
    tried = [h for h in _tried(setting, target) if set(h.apply(setting).boundaries(target.num_layers)) <= held]
    searched = np.zeros(len(material.captures), bool)
    found = run_round(1, setting, tried, runner, limits, searched_on=searched, clock=monotonic)
    if found.winner is None or found.winner_row is None:
        return ShortAudit((), (), all(control.beaten for control in found.controls))
    scores, _ = runner.run(found.winner.apply(setting))
    # The winner, too, must do better than a drafter that knows nothing.
    rise = found.winner_row.agreement_later if found.winner.reach == "later" else found.winner_row.agreement_first
    top = max(control.agreement for control in found.controls)
    if float(scores.agreement[:, 0].mean()) < top + limits.agreement or rise is None:
        return ShortAudit((), (), False)
    option = flag(found.winner)
    where = "at steps 2 to 4" if found.winner.reach == "later" else "at step 1"
    text = (
        f"{found.winner.switch} may be wrong: with {found.winner.alternative} instead of {found.winner.declared} the"
        f" drafter agrees with the target {rise.mean:.0%} more often {where} ({found.winner.code}"
        f"{'; ' + option if option else ''}; `driftscope audit` tells more)"
    )
    return ShortAudit((text,), tuple(row for row in found.rows if row.status == "better"), True)


def _tried(setting: Setting, target: TargetFacts) -> list[Hypothesis]:
    return [
        h
        for h in hypotheses(setting, target)
        if h.switch in SWITCHES
        and not h.ruled_out
        and "order" not in h.alternative
        and "in wide use" not in h.alternative
    ]
