"""The carried state must not grow."""

from __future__ import annotations

from driftscope.asserts.bounds import Bound, Figure, from_step_2
from driftscope.asserts.outcome import Outcome, conclude
from driftscope.asserts.reading import needed, prompts_of, summary_to
from driftscope.runs.run import Run


def assert_norm_growth(
    run: Run, max_ratio: float = 1.5, step: int = 8, *, matched: bool = False, allow_unknown: bool = False
) -> Outcome:
    """The RMS of the carried state stays within `max_ratio` of step 1's at the steps 2 to `step`.

    A post-norm carry keeps its norm by construction: there a pass says nothing.

    Args:
        run: the run.
        max_ratio: largest RMS over that of step 1, geometric mean.
        step: the last step that is judged.
        matched: against the row at the same position made from real target features, instead of step 1.
        allow_unknown: warn where too few prompts were measured to tell, instead of failing.

    Returns:
        What was found.

    Raises:
        AssertionError: a step lies beyond the limit, or cannot be told.
        RunError: the run holds fewer steps or no norms.
    """
    __tracebackhide__ = True
    summary = summary_to(run, step)
    name = "matched_growth" if matched else "growth"
    label = "matched growth" if matched else "norm growth"
    figures = [Figure(needed(run, part, label, name), part["step"]) for part in summary["steps"]]
    bound = Bound(label, max_ratio, from_step_2(figures), unit="x", prompts=prompts_of(run))
    return conclude(run, [bound], codes=("DS101",), allow_unknown=allow_unknown, depth=step)
