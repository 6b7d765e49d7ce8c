"""DS101: the carried state grows from step to step."""

from __future__ import annotations

from driftscope.findings.cost import costs_nothing
from driftscope.findings.cost_words import path_clause
from driftscope.findings.measured import AT_ONCE, Measured, interval_of
from driftscope.findings.model import Evidence, Finding, NotMeasured
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
