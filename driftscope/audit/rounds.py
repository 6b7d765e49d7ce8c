"""One round: every hypothesis about a setting measured, tested together, and the one that explains most."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from driftscope.audit.controls import Control, run_controls
from driftscope.audit.decide import Difference, Limits, Status, sign_flip_p, signature, too_small
from driftscope.audit.hypotheses import Hypothesis
from driftscope.audit.report import Row
from driftscope.audit.score import Runner, Scores, Trace
from driftscope.audit.setting import Setting
from driftscope.errors import CheckpointError
from driftscope.stats.intervals import MIN_DENOMINATOR, bca

_RESAMPLES = 1000
_SLIGHT = 0.01
_TIED = 0.95
"""Of alternatives that gain nearly as much as the best one, the first in the list is taken."""


@dataclass(frozen=True)
class Round:
    """What a round leaves behind."""

    setting: Setting
    scores: Scores
    controls: list[Control]
    rows: list[Row]
    winner: Hypothesis | None
    winner_row: Row | None
    cost: dict[str, float]
    """Hypothesis -> seconds."""


def run_round(
    number: int,
    setting: Setting,
    tried: Sequence[Hypothesis],
    runner: Runner,
    limits: Limits,
    *,
    searched_on: NDArray[np.bool_],
    clock: Callable[[], float],
    advance: Callable[[str], None] = lambda note: None,
) -> Round:
    """Measure `tried` against `setting`. searched_on: prompts that searched hypotheses may not be judged on."""
    declared, base = runner.run(setting)
    controls = run_controls(setting, declared, runner, limits)
    rows: list[Row | None] = [None] * len(tried)
    measured: dict[int, tuple[Scores, Difference]] = {}
    cost: dict[str, float] = {}
    for index, hypothesis in enumerate(tried):
        advance(hypothesis.name)
        began = clock()
        scores, reason = (
            (None, hypothesis.ruled_out) if hypothesis.ruled_out else _measure(hypothesis, setting, runner, base)
        )
        cost[hypothesis.name] = clock() - began
        if scores is None:
            rows[index] = _row(number, hypothesis, "ruled out", reason)
        else:
            left_out = searched_on if hypothesis.searched else None
            measured[index] = scores, Difference.of(scores, declared, left_out)
    if measured:
        worst = min(control.loss for control in controls)
        for index, row in _judge(number, tried, measured, declared, worst, limits):
            rows[index] = row
    done = [row for row in rows if row is not None]
    best = _winner(done, {tried[i].name: difference for i, (_, difference) in measured.items()})
    found = next((h for h in tried if best is not None and h.name == best.name), None)
    return Round(setting, declared, controls, done, found, best, cost)


def _measure(hypothesis: Hypothesis, setting: Setting, runner: Runner, base: Trace) -> tuple[Scores | None, str]:
    try:
        return runner.run(hypothesis.apply(setting), reach=hypothesis.reach, base=base)[0], ""
    except CheckpointError as error:
        return None, str(error)


def _judge(
    number: int,
    tried: Sequence[Hypothesis],
    measured: dict[int, tuple[Scores, Difference]],
    declared: Scores,
    control_loss: float,
    limits: Limits,
) -> list[tuple[int, Row]]:
    """Rows of the measured hypotheses."""
    deciding = np.stack(
        [
            difference.loss_later if tried[index].reach == "later" else difference.loss_first
            for index, (_, difference) in measured.items()
        ],
        1,
    )
    better, worse = sign_flip_p(deciding, flips=limits.flips)
    parts = ("loss_first", "loss_later", "agree_first", "agree_later", "length")
    table = np.stack([[getattr(d, part) for part in parts] for _, d in measured.values()], 0)
    intervals = bca(table.transpose(2, 0, 1), resamples=_RESAMPLES)
    enough = len(deciding) >= limits.prompts
    rows = []
    for column, (index, (scores, difference)) in enumerate(measured.items()):
        hypothesis = tried[index]
        later = hypothesis.reach == "later"
        status: Status = "indistinguishable"
        reason = "" if scores.finite else "its logits are not finite"
        if enough and better[column] < limits.alpha:
            small = too_small(difference, scores, declared, control_loss, later=later, limits=limits)
            status = "indistinguishable" if small else "better"
            reason = reason or small
        elif enough and worse[column] < limits.alpha:
            status = "worse"
        gain = float(np.nanmean(deciding[:, column]))
        figures = [intervals.at(column, part) for part in range(len(parts))]
        row = replace(
            _row(number, hypothesis, status, reason),
            signature=signature(difference, limits),
            prompts=int(np.isfinite(deciding[:, column]).sum()),
            p_better=float(better[column]),
            p_worse=float(worse[column]),
            acceptance=conditional(scores),
            loss_first=figures[0],
            loss_later=figures[1],
            agreement_first=figures[2],
            agreement_later=figures[3],
            length=figures[4],
            slight=bool(enough and better[column] < limits.alpha and status != "better" and gain >= _SLIGHT),
        )
        rows.append((index, row))
    return rows


def _row(number: int, hypothesis: Hypothesis, status: Status, reason: str) -> Row:
    return Row(
        round=number,
        code=hypothesis.code,
        switch=hypothesis.switch,
        declared=hypothesis.declared,
        alternative=hypothesis.alternative,
        status=status,
        reason=reason,
        searched=hypothesis.searched,
    )


def _winner(rows: Sequence[Row], differences: dict[str, Difference]) -> Row | None:
    """The better row that gains most over all steps; of those that gain as much, the first."""
    gains = {row.name: float(np.nanmean(differences[row.name].loss)) for row in rows if row.status == "better"}
    if not gains:
        return None
    bar = _TIED * max(gains.values())
    return next(row for row in rows if row.name in gains and gains[row.name] >= bar)


def conditional(scores: Scores) -> tuple[float | None, ...]:
    """Drafted conditional acceptance by step: accepted over reached, anchors of all prompts."""
    accepted, reached = scores.accepted.sum(0), scores.reached.sum(0)
    return tuple(float(a / r) if r >= MIN_DENOMINATOR else None for a, r in zip(accepted, reached, strict=True))
