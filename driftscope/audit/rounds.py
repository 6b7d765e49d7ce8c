"""One round: every hypothesis about a setting measured, tested together, and the one that explains most.

Hypotheses that are worse beyond chance on the prompts of a first pass, or cannot come to matter, are not run on the others.
That costs no error: what is given up is never called better, and its figures stay in the maximum of the test.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from driftscope.audit.alike import alike
from driftscope.audit.controls import Control, run_controls
from driftscope.audit.decide import Difference, Limits, Status, sign_flip_p, signature, too_small
from driftscope.audit.fix import flag
from driftscope.audit.hypotheses import Hypothesis
from driftscope.audit.report import Row
from driftscope.audit.score import Runner, Scores, Trace
from driftscope.audit.setting import Setting
from driftscope.errors import CheckpointError
from driftscope.stats.intervals import MIN_DENOMINATOR, bca

_RESAMPLES = 1000
_SLIGHT = 0.01
_FAR = 4.0
"""Standard errors to the size that would matter, beyond which the first pass settles that a change does not."""
_TIED = 0.99
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
    choices: tuple[Hypothesis, ...]
    """The winner, and after it the alternatives that the texts cannot tell from it."""
    cost: dict[str, float]
    """Hypothesis -> seconds."""


@dataclass(frozen=True)
class Course:
    """How a round goes on."""

    searched_on: NDArray[np.bool_]
    """Prompts that searched hypotheses may not be judged on."""
    clock: Callable[[], float]
    """Seconds."""
    advance: Callable[[str], None] = lambda note: None
    refine: Callable[[Hypothesis], list[Hypothesis]] = lambda winner: []
    """What else to try beside a winner."""


def run_round(
    number: int,
    setting: Setting,
    tried: Sequence[Hypothesis],
    runner: Runner,
    limits: Limits,
    course: Course,
) -> Round:
    """Measure `tried` against `setting`."""
    searched_on, clock, advance, refine = course.searched_on, course.clock, course.advance, course.refine
    declared, base = runner.run(setting)
    controls = run_controls(setting, declared, runner, limits)
    rows: list[Row | None] = [None] * len(tried)
    measured: dict[int, tuple[Scores, Difference]] = {}
    cost: dict[str, float] = {}
    every = range(len(runner.material.batches))
    first, rest = every[: runner.material.first], every[runner.material.first :]

    def run(index: int, batches: Sequence[int]) -> Scores | str:
        hypothesis = tried[index]
        began = clock()
        scores = hypothesis.ruled_out or _measure(hypothesis, setting, runner, base, batches)
        cost[hypothesis.name] = cost.get(hypothesis.name, 0.0) + clock() - began
        return scores

    for index, hypothesis in enumerate(tried):
        advance(hypothesis.name)
        # The prompts of the search take part in the first pass.
        scores = run(index, every if hypothesis.searched else first)
        if isinstance(scores, str):
            rows[index] = _row(number, hypothesis, "ruled out", scores)
        else:
            left_out = searched_on if hypothesis.searched else None
            measured[index] = scores, Difference.of(scores, declared, left_out)
    passed = {index: found for index, found in measured.items() if not tried[index].searched}
    stopped = hopeless(tried, {index: difference for index, (_, difference) in passed.items()}, limits) if rest else {}
    for index in passed.keys() - stopped.keys() if rest else ():
        later = run(index, rest)
        assert isinstance(later, Scores)
        scores = passed[index][0].joined(later)
        measured[index] = scores, Difference.of(scores, declared)
    worst = min(control.loss for control in controls)
    for index, row in judge(number, tried, measured, stopped, declared, worst, limits):
        rows[index] = row
    best = winner([row for row in rows if row is not None], _differences(tried, measured))
    if best is not None:
        more = refine(next(h for h in tried if h.name == best.name))
        tried = [*tried, *more]
        rows += [None] * len(more)
        finer: dict[int, tuple[Scores, Difference]] = {}
        for index in range(len(tried) - len(more), len(tried)):
            advance(tried[index].name)
            scores = run(index, every)
            if isinstance(scores, str):
                rows[index] = _row(number, tried[index], "ruled out", scores)
            else:
                finer[index] = scores, Difference.of(scores, declared)
        # A test of its own: the finer grid is asked because something won already, and must not raise the bar for that.
        for index, row in judge(number, tried, finer, {}, declared, worst, limits):
            rows[index] = row
        measured |= finer
        best = winner([row for row in rows if row is not None], _differences(tried, measured))
    done = [row for row in rows if row is not None]
    choices = _choices(best, done, tried, {index: difference for index, (_, difference) in measured.items()}, limits)
    won = next((row for row in done if choices and row.name == choices[0].name), None)
    return Round(setting, declared, controls, done, choices[0] if choices else None, won, choices, cost)


def _differences(tried: Sequence[Hypothesis], measured: dict[int, tuple[Scores, Difference]]) -> dict[str, Difference]:
    return {tried[index].name: difference for index, (_, difference) in measured.items()}


def _choices(
    best: Row | None,
    rows: Sequence[Row],
    tried: Sequence[Hypothesis],
    differences: dict[int, Difference],
    limits: Limits,
) -> tuple[Hypothesis, ...]:
    """The best alternative and those that cannot be told from it. Of the same switch the first in the list leads that is
    better than the declared value: the entries name what is usual before what is not."""
    if best is None:
        return ()
    index = next(i for i in differences if tried[i].name == best.name)
    near = [tried[i] for i in alike(index, differences, limits)]
    better = {row.name for row in rows if row.status == "better"}
    return tuple(sorted(near, key=lambda h: (h.switch != best.switch, h.name not in better)))


def _measure(
    hypothesis: Hypothesis, setting: Setting, runner: Runner, base: Trace, batches: Sequence[int]
) -> Scores | str:
    """Scores, or why there are none."""
    try:
        return runner.run(hypothesis.apply(setting), reach=hypothesis.reach, base=base, batches=batches)[0]
    except CheckpointError as error:
        return str(error)


def _deciding(hypothesis: Hypothesis, difference: Difference) -> tuple[NDArray[np.float64], ...]:
    """A change that enters at step 2 is judged there; any other at step 1 and over all steps, whichever shows it."""
    return (difference.loss_later,) if hypothesis.reach == "later" else (difference.loss_first, difference.loss)


def _p_values(
    deciding: Sequence[tuple[NDArray[np.float64], ...]], limits: Limits
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """p of being better and of being worse, one per hypothesis: the smallest of its columns, all of them in one maximum."""
    owner = np.repeat(np.arange(len(deciding)), [len(columns) for columns in deciding])
    better, worse = sign_flip_p(np.stack([column for group in deciding for column in group], 1), flips=limits.flips)
    smallest = [np.array([p[owner == index].min() for index in range(len(deciding))]) for p in (better, worse)]
    return smallest[0], smallest[1]


def hopeless(
    tried: Sequence[Hypothesis], differences: dict[int, Difference], limits: Limits
) -> dict[int, tuple[Status, float]]:
    """Hypotheses that are given up after the first pass -> what they are, and their p of being worse."""
    deciding = [_deciding(tried[index], difference) for index, difference in differences.items()]
    if not deciding or np.isfinite(deciding[0][0]).sum() < limits.prompts:
        return {}
    _, worse = _p_values(deciding, limits)
    found: dict[int, tuple[Status, float]] = {}
    for index, columns, p in zip(differences, deciding, worse, strict=True):
        values = np.stack([column[np.isfinite(column)] for column in columns])
        mean, error = values.mean(1), values.std(1, ddof=1) / values.shape[1] ** 0.5
        if p < limits.alpha and (mean < 0).all():
            found[index] = "worse", float(p)
        elif (abs(mean) + _FAR * error < limits.loss).all():
            found[index] = "indistinguishable", float(p)
    return found


def judge(
    number: int,
    tried: Sequence[Hypothesis],
    measured: dict[int, tuple[Scores, Difference]],
    stopped: dict[int, tuple[Status, float]],
    declared: Scores,
    control_loss: float,
    limits: Limits,
) -> list[tuple[int, Row]]:
    """Rows of the measured hypotheses, by their index in `tried`. stopped: those that the first pass gave up."""
    if not measured:
        return []
    deciding = [_deciding(tried[index], difference) for index, (_, difference) in measured.items()]
    better, worse = _p_values(deciding, limits)
    parts = ("loss_first", "loss_later", "agree_first", "agree_later", "length")
    table = np.stack([[getattr(d, part) for part in parts] for _, d in measured.values()], 0)
    intervals = bca(table.transpose(2, 0, 1), resamples=_RESAMPLES)
    enough = len(declared.anchors) >= limits.prompts
    rows = []
    for column, (index, (scores, difference)) in enumerate(measured.items()):
        hypothesis = tried[index]
        later = hypothesis.reach == "later"
        status: Status = "indistinguishable"
        reason = "" if scores.finite else "its logits are not finite"
        up, down = (enough and bool(p[column] < limits.alpha) for p in (better, worse))
        if index in stopped:
            up, (status, worse[column]) = False, stopped[index]
        elif up:
            small = too_small(difference, scores, declared, control_loss, later=later, limits=limits)
            status = "indistinguishable" if small else "better"
            reason = reason or ("better at some steps, worse at others" if small and down else small)
        elif down:
            status = "worse"
        gain = max(float(np.nanmean(part)) for part in deciding[column])
        figures = [intervals.at(column, part) for part in range(len(parts))]
        row = replace(
            _row(number, hypothesis, status, reason),
            signature=signature(difference, limits),
            prompts=int(np.isfinite(deciding[column][0]).sum()),
            p_better=float(better[column]),
            p_worse=float(worse[column]),
            acceptance=conditional(scores),
            loss_first=figures[0],
            loss_later=figures[1],
            agreement_first=figures[2],
            agreement_later=figures[3],
            length=figures[4],
            slight=up and not down and status != "better" and gain >= _SLIGHT,
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
        settled_by=hypothesis.settled_by,
        flag=flag(hypothesis) or "",
    )


def winner(rows: Sequence[Row], differences: dict[str, Difference]) -> Row | None:
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
