"""What the rounds of an audit come to: its verdict, and the faults as findings."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from driftscope.audit.batches import DEPTH, Material
from driftscope.audit.controls import Control
from driftscope.audit.decide import Limits
from driftscope.audit.fix import advise, flag
from driftscope.audit.report import Audit, Baseline, Fault, Outcome, Row
from driftscope.audit.rounds import Round, conditional
from driftscope.audit.score import Scores
from driftscope.audit.setting import Setting
from driftscope.audit.static import StaticHint
from driftscope.audit.unsettled import unsettled
from driftscope.chain.pair import Pair
from driftscope.findings.checkpoint_codes import CODES
from driftscope.findings.model import Evidence, Finding

TITLES = {code.code: code.title for code in CODES}


@dataclass(frozen=True)
class Measured:
    """What the rounds of an audit leave behind."""

    declared: Setting
    """Of the checkpoint."""
    setting: Setting
    """Of the last round."""
    rounds: Sequence[Round]
    final: list[Control]
    """The controls of the last setting."""
    hints: list[StaticHint]
    seconds: float
    garbage: str = ""
    """Why the texts tell nothing, if they do not."""


def conclude(pair: Pair, measured: Measured, material: Material, limits: Limits) -> Audit:
    """The audit, from its rounds."""
    declared, setting, rounds = measured.declared, measured.setting, measured.rounds
    final, hints, garbage = measured.final, measured.hints, measured.garbage
    rows = tuple(row for item in rounds for row in item.rows)
    prompts = len(material.captures)
    lost = [control.name for control in final if not control.beaten]
    outcome: Outcome
    faults: list[Fault] = []
    if prompts < limits.prompts:
        outcome = "cannot tell"
        verdict = f"{prompts} usable prompts are too few to decide; at least {limits.prompts} are needed."
    elif garbage:
        outcome, verdict = "cannot tell", f"{garbage[0].upper()}{garbage[1:]}."
    elif lost:
        outcome = "cannot tell"
        verdict = (
            f"The drafter does no better than {' and '.join(lost)}: what it was trained with cannot be told from how it"
            " drafts."
        )
    else:
        faults = faults_of(pair, rounds)
        outcome = "misconfigured" if faults else "holds"
        verdict = _verdict(faults, rows, rounds[0].scores)
    codes = {fault.finding.code for fault in faults}
    weighty = [hint for hint in hints if outcome == "cannot tell" or hint.code in codes]
    static = [Finding(hint.code, TITLES[hint.code], hint.statement, advice=(hint.advice,)) for hint in weighty]
    return Audit(
        checkpoint=str(pair.checkpoint.path),
        target=pair.target.name,
        outcome=outcome,
        verdict=verdict,
        prompts=prompts,
        anchors=material.anchors,
        baseline=_baseline(rounds[0].scores),
        controls=(*rounds[0].controls, *(final if final is not rounds[0].controls else ())),
        rows=rows,
        faults=tuple(faults),
        static=tuple(static),
        hints=tuple(hint for hint in hints if hint not in weighty),
        # Beside a setting that lost, what does as well as it says nothing.
        unsettled=unsettled(pair.checkpoint, rounds[-1].rows) if rounds[-1].winner is None else (),
        warnings=pair.warnings,
        seconds=measured.seconds,
        declared_setting=declared,
        setting=setting if faults else declared,
        target_config=pair.target.text_config,
    )


def faults_of(pair: Pair, rounds: Sequence[Round]) -> list[Fault]:
    """The winners of rounds as findings with what to do."""
    faults = []
    for item in rounds:
        if item.winner is None or item.winner_row is None:
            break
        hypothesis, row = item.winner, item.winner_row
        after = hypothesis.apply(item.setting)
        advice = advise(hypothesis, item.setting, after, pair.checkpoint, pair.target.num_layers)
        finding = Finding(
            code=hypothesis.code,
            title=TITLES[hypothesis.code],
            statement=_statement(row, item.scores),
            evidence=_evidence(row, limits_of=hypothesis.reach == "later"),
            advice=tuple(_steps(advice, [words for h in item.choices[1:] if (words := flag(h))])),
            step=2 if row.signature == "steps 2 on" else 1,
        )
        fault = Fault(finding, row.round, row.switch, row.declared, row.alternative, advice, item.choices)
        if len(item.choices) > 1:
            also = f"; it may as well be another: {row.switch} is {fault.named}"
            fault = replace(fault, finding=replace(finding, statement=finding.statement + also))
        faults.append(fault)
    return faults


def _statement(row: Row, scores: Scores) -> str:
    later = row.signature == "steps 2 on"
    rise = row.agreement_later if later else row.agreement_first
    assert rise is not None
    now = float((scores.agreement[:, 1:] if later else scores.agreement[:, :1]).mean())
    where = f"at steps 2 to {DEPTH}" if later else "at step 1"
    return (
        f"{row.switch} is {row.declared}; with {row.alternative} top-1 agreement {where} goes from {now:.2f} to"
        f" {now + rise.mean:.2f}"
    )


def _evidence(row: Row, *, limits_of: bool) -> tuple[Evidence, ...]:
    over = f"{row.prompts} prompts"
    figures = (
        ("loss at step 1, fall", row.loss_first, "nats"),
        (f"loss at steps 2 to {DEPTH}, fall", row.loss_later, "nats"),
        ("top-1 agreement at step 1, rise", row.agreement_first, "share"),
        (f"top-1 agreement at steps 2 to {DEPTH}, rise", row.agreement_later, "share"),
        (f"accepted tokens of {DEPTH}, rise", row.length, ""),
    )
    found = [Evidence.of(name, value, unit=unit, over=over) for name, value, unit in figures if value is not None]
    return tuple(found[2:] + found[:2] if limits_of else found)


def _steps(advice: Any, others: Sequence[str]) -> list[str]:
    steps = []
    if advice.flag:
        steps.append(f"run it with {advice.flag}")
    if others:
        steps.append(
            f"or as likely: {', '.join(others)}; longer and more prompts tell them apart, or the trainer's config"
        )
    if advice.config:
        steps.append("config.json: " + ", ".join(f"{key} = {_json(value)}" for key, value in advice.config.items()))
    if advice.tensors:
        steps.append(f"tensors to change: {', '.join(advice.tensors)} (--fix does it)")
    if advice.inexpressible:
        steps.append(f"not to be written in this layout: {advice.inexpressible}")
    return [*steps, *(f"{engine}: {text}" for engine, text in advice.engines.items())]


def _json(value: Any) -> str:
    return "leave out" if value is None else json.dumps(value)


def _verdict(faults: Sequence[Fault], rows: Sequence[Row], scores: Scores) -> str:
    if faults:
        named = "; then ".join(f"{fault.switch} should be {fault.named}, not {fault.declared}" for fault in faults)
        return f"The checkpoint is not run as it was trained: {named}."
    counts = {status: sum(row.status == status for row in rows) for status in ("worse", "indistinguishable")}
    sentence = (
        f"No alternative is better than the declared setting: {counts['worse']} are worse, {counts['indistinguishable']}"
        " make no difference that matters."
    )
    slight = [row.name for row in rows if row.slight]
    if slight:
        listed = ", ".join(slight[:3]) + (f" and {len(slight) - 3} more" if len(slight) > 3 else "")
        sentence += f" Better beyond chance, by too little to act on: {listed}."
    first, last = float(scores.agreement[:, 0].mean()), float(scores.agreement[:, -1].mean())
    if last < 0.5 * first:
        sentence += (
            f" Agreement falls from {first:.2f} at step 1 to {last:.2f} at step {DEPTH} all the same: the drafter itself"
            " loses it, not its config."
        )
    return sentence


def _baseline(scores: Scores) -> Baseline:
    return Baseline(
        loss=tuple(float(value) for value in scores.mean_loss.mean(0)),
        agreement=tuple(float(value) for value in scores.agreement.mean(0)),
        acceptance=conditional(scores),
        length=float(scores.length.mean()),
    )
