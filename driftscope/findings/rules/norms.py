"""DS101: the carried state grows from step to step."""

from __future__ import annotations

from driftscope.findings.advice import DRIFT_PAPER, FEWER, FLIP, PIN, TTT
from driftscope.findings.cost import costs_nothing
from driftscope.findings.cost_words import path_clause
from driftscope.findings.measured import AT_ONCE, Measured, interval_of
from driftscope.findings.model import Coded, Definition, Evidence, Finding, NotMeasured, Threshold
from driftscope.findings.registry import definition
from driftscope.findings.words import with_interval

CODE = "DS101"
PATH = "state"
"""The path through which growth can cost anything."""


def growth(measured: Measured) -> Finding | NotMeasured | None:
    """Growth beyond the threshold to the last step."""
    if measured.at_once:
        return NotMeasured(CODE, AT_ONCE)
    onset = measured.onsets.get("norm_up")
    if onset is None:
        return NotMeasured(CODE, "the carry's RMS was not recorded")
    if onset == "not measurable":
        return NotMeasured(CODE, measured.few or "a step has too few prompts for an interval")
    if onset == "none":
        if measured.post_norm:
            return NotMeasured(CODE, "a post-norm carry keeps its norm by construction: flat says nothing")
        return None
    last = measured.summary["steps"][-1]
    total, matched = interval_of(last.get("growth")), interval_of(last.get("matched_growth"))
    assert total is not None
    per_step = total.mean ** (1 / (last["step"] - 1))
    evidence = [
        measured.evidence(
            f"growth at step {last['step']}", total, unit="x", threshold=measured.thresholds["norm_growth"]
        ),
        Evidence("growth per step", per_step, unit="x", over=measured.over),
    ]
    statement = f"The carried state's RMS is {with_interval(total, 'x')} that of step 1 at step {last['step']}"
    if matched is not None:
        evidence.append(measured.evidence(f"matched growth at step {last['step']}", matched, unit="x"))
        statement += f", {with_interval(matched, 'x')} that of the same position without drafting"
    carry = "the post-norm carry notwithstanding" if measured.post_norm else "from step"
    statement += (
        f", {carry}{'; from step' if measured.post_norm else ''} {onset} on; {path_clause(measured.cost, PATH)}."
    )
    about = definition(CODE)
    advice = about.advice
    if measured.post_norm:
        advice = (
            "Check that the carry is read as trained (--carry pre): a normalised state cannot grow by much.",
            *advice[1:],
        )
    return Finding(CODE, about.title, statement, tuple(evidence), advice, onset, costs_nothing(measured.cost, PATH))


FINDINGS = (
    Coded(
        Definition(
            "DS101",
            "Norm growth",
            meaning="The state that the drafter hands from step to step gets larger at every step. In EAGLE-3 it goes"
            " through an un-normalised residual path, so each step adds to it and what a later step adds weighs less: the"
            " drafter then acts like further layers of the target rather than like a predictor of the next position.",
            measured="RMS of the carry at step k over that at step 1, per anchor, as a geometric mean over anchors and then"
            " prompts. Found from the first step that is beyond the threshold, with a 95% interval over prompts that"
            " excludes 1, and stays so to the last step. Matched growth is against a row made from real target features at"
            " the same position.",
            limits="Where the cost probe was run and drift costs nothing through the carried state, this is a note, not a"
            " finding. Attention reads the normalised state, so growth does not scale queries or keys by itself; the pin probe"
            " tells how much follows from it. A post-norm carry keeps its norm by construction: there a flat norm says"
            " nothing about health, and the rule is silent about it.",
            advice=(
                "Train with a post-norm carry (`norm_output`): the normalised state is carried on. It adds no"
                f" weights but takes training. {FLIP}",
                PIN,
                TTT,
                FEWER,
            ),
            thresholds=("norm_growth",),
            probes=("norms",),
            sources=(DRIFT_PAPER, "SafeAILab/EAGLE issue 63: a carried state that grows until it is not a number"),
        ),
        growth,
        (
            Threshold(
                "norm_growth",
                1.1,
                "growth of the carry's RMS over step 1's, as a factor",
                "Published pre-norm drafters grow 1.3x (gpt-oss-120b) to 3.6x (Llama-3.1-8B) over 8 steps, a post-norm one"
                f" stays within 1%: {DRIFT_PAPER}. 10% lies between.",
                above=1.0,
            ),
        ),
    ),
)
"""What is looked for here: its words, its rule, and its limits with the reason for each default."""
