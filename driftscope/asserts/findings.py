"""No finding, or none but those that are known."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from driftscope.asserts.outcome import Outcome, refuse_withheld, settle
from driftscope.findings import Finding, Thresholds, assess, definition
from driftscope.runs.run import Run


def assert_no_findings(
    run: Run,
    ignore: Sequence[str] = (),
    *,
    notes: bool = False,
    thresholds: Thresholds | Path | None = None,
    depth: int | None = None,
    allow_unknown: bool = False,
) -> Outcome:
    """The run has no finding of drift (DS1xx) or of the checkpoint (DS2xx) beside those in `ignore`.

    Where too little was measured to call a run healthy, that is not known.

    Args:
        run: the run.
        ignore: codes.
        notes: judge notes on the data (DS3xx) as well.
        thresholds: as `driftscope.findings.assess` takes them.
        depth: steps; None is all that the run holds.
        allow_unknown: warn where too few prompts were measured to tell, instead of failing.

    Returns:
        What was found.

    Raises:
        AssertionError: a finding, or too little to tell.
        UnknownCodeError: a code in `ignore` that does not exist.
    """
    __tracebackhide__ = True
    refuse_withheld(run)
    ignored = {definition(code).code for code in ignore}
    assessment = assess(run, thresholds, depth=depth)
    found = [*assessment.findings, *_of_the_checkpoint(run, assessment.findings)]
    left = [part for part in found if part.code not in ignored and (notes or part.kind != "note")]
    if left:
        sentences = [f"{part.code} {part.title}: {part.statement}" for part in left]
        steps = [part.step for part in left if part.step is not None]
        return settle(
            run,
            "failed",
            sentences,
            codes=[part.code for part in left],
            allow_unknown=allow_unknown,
            depth=depth,
            step=min(steps, default=None),
            reason="the first that a finding names",
        )
    still_open = [
        part for part in assessment.unmeasured if part.code in ("DS101", "DS102") and part.code not in ignored
    ]
    if assessment.judged or not still_open or any(part.code == "DS102" for part in found):
        return Outcome("passed")
    reasons = "; ".join(f"{part.code}: {part.reason}" for part in still_open)
    return settle(
        run,
        "unknown",
        [f"too little was measured to tell: {reasons}"],
        codes=[part.code for part in still_open],
        allow_unknown=allow_unknown,
        depth=depth,
        stacklevel=3,
    )


def codes_of(run: Run, depth: int | None = None) -> tuple[str, ...]:
    """The codes that a run shows, notes left out."""
    return tuple(part.code for part in assess(run, depth=depth).wrong)


def _of_the_checkpoint(run: Run, known: Sequence[Finding]) -> list[Finding]:
    """What an audit left in the run."""
    codes = {part.code for part in known}
    stored = [Finding.from_dict(content) for content in run.info.findings]
    return [part for part in stored if part.kind == "checkpoint" and part.code not in codes]
