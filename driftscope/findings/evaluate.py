"""Every rule on one run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from driftscope import stats
from driftscope.findings.fitting import fitting
from driftscope.findings.measured import Measured
from driftscope.findings.model import Assessment, Finding, NotMeasured, kind_of
from driftscope.findings.registry import rules
from driftscope.findings.thresholds import Thresholds, load
from driftscope.findings.withheld import withheld
from driftscope.runs.summary import unconfirmed

if TYPE_CHECKING:
    from driftscope.runs.run import Run


def assess(
    run: Run,
    thresholds: Thresholds | Path | None = None,
    *,
    depth: int | None = None,
    resamples: int = stats.RESAMPLES,
) -> Assessment:
    """Findings, what could not be asked, and whether it suffices to call the run healthy.

    DS2xx are those that an audit stored in the run.

    Args:
        run: the run.
        thresholds: values, a TOML file, or None for those of the nearest pyproject.toml.
        depth: steps; None is all that the run holds.
        resamples: of prompts, for the intervals.

    Returns:
        The findings in the order of their weight, and what was not measured.

    Raises:
        ThresholdError: a bad file.
        RunError: the run holds fewer steps than `depth`.
    """
    limits = thresholds if isinstance(thresholds, Thresholds) else load(thresholds)
    measured = Measured(run, limits, depth, resamples)
    findings, unmeasured, clear = [], [], []
    for code, rule in rules().items():
        outcome = rule(measured)
        if isinstance(outcome, Finding):
            findings.append(fitting(outcome, measured.switches))
        elif isinstance(outcome, NotMeasured):
            unmeasured.append(outcome)
        else:
            clear.append(code)
    # DS102 alone suffices; DS101 is healthy only where the carry could have grown. What moves without a cost was judged too.
    known = {*clear, *(finding.code for finding in findings)}
    judged = bool(known & {"DS101", "DS102"})
    # Where all steps are drafted at once there is no drift to judge, but acceptance by step is.
    judged |= measured.at_once and "DS105" in clear
    if unconfirmed(measured.summary["settings"]) is not None:
        judged = False
    stored = [Finding.from_dict(part) for part in run.info.findings if kind_of(part["code"]) == "checkpoint"]
    if why := withheld(run.info.trust):
        notes = tuple(finding for finding in findings if finding.kind == "note")
        return Assessment(notes, tuple(unmeasured), (), False, measured.onsets, measured.spreads, measured.cost, why)
    return Assessment(
        (*findings, *stored), tuple(unmeasured), tuple(clear), judged, measured.onsets, measured.spreads, measured.cost
    )


def save(run: Run, assessment: Assessment) -> None:
    """Store the findings in `run.json`."""
    run.update(findings=[finding.to_dict() for finding in assessment.findings])


def evaluate(run: Run, thresholds: Thresholds | Path | None = None, *, depth: int | None = None) -> list[Finding]:
    """The findings of `assess`. A quantity that was not measured gives none."""
    return list(assess(run, thresholds, depth=depth).findings)
