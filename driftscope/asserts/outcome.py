"""From bounds to a result or an AssertionError with everything that is needed to understand it."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

from driftscope.asserts.bounds import Bound, Verdict, worst
from driftscope.asserts.tables import facts, table_of_steps
from driftscope.findings.withheld import withheld
from driftscope.runs.run import Run


class UndecidedWarning(UserWarning):
    """An assertion that was allowed to stay open: too few prompts to tell."""


@dataclass(frozen=True)
class Outcome:
    """What an assertion found. One that failed is the `outcome` of no call: it raised."""

    verdict: Verdict
    """`unknown` only with `allow_unknown`."""
    bounds: tuple[Bound, ...] = ()
    message: str = ""
    """Empty where it passed."""


def refuse_withheld(run: Run) -> None:
    """Raise AssertionError for a run whose verdict is withheld: what was measured of it means nothing."""
    __tracebackhide__ = True
    if why := withheld(run.info.trust):
        raise AssertionError(f"nothing can be asserted of run {run.folder}: {why}")


def conclude(
    run: Run,
    bounds: Sequence[Bound],
    *,
    codes: Sequence[str],
    allow_unknown: bool,
    depth: int | None = None,
    step: int | None = None,
    reason: str = "",
    details: str = "",
) -> Outcome:
    """The outcome of `bounds`, or AssertionError.

    codes: for `driftscope explain`. step: the one to mark, by default the first that a bound fails at; reason: in words,
    what the mark stands for. details: a table that belongs above that of the steps.
    """
    __tracebackhide__ = True
    return settle(
        run,
        worst(bound.verdict for bound in bounds),
        [bound.sentence for bound in bounds if bound.verdict != "passed"],
        bounds=bounds,
        codes=codes,
        allow_unknown=allow_unknown,
        depth=depth,
        step=step if step is not None else _first(bounds),
        reason=reason,
        details=details,
        stacklevel=4,
    )


def settle(
    run: Run,
    verdict: Verdict,
    sentences: Sequence[str],
    *,
    codes: Sequence[str],
    allow_unknown: bool,
    bounds: Sequence[Bound] = (),
    depth: int | None = None,
    step: int | None = None,
    reason: str = "",
    details: str = "",
    stacklevel: int = 3,
) -> Outcome:
    """`conclude` for a verdict in words."""
    __tracebackhide__ = True
    refuse_withheld(run)
    if verdict == "passed":
        return Outcome("passed", tuple(bounds))
    parts = [*sentences, facts(run), "", *([details, ""] if details else [])]
    summary = run.summary(depth)
    if summary["steps"]:
        parts += [table_of_steps(summary, step), ""]
        if step is not None:
            usual = "the first beyond the limit" if verdict == "failed" else "the first that nobody can tell"
            parts.append(f"> step {step}: {reason or usual}")
    parts.append(f"what it means and what to try: {'; '.join(f'driftscope explain {code}' for code in codes)}")
    message = "\n".join(parts)
    if verdict == "unknown" and allow_unknown:
        warnings.warn("; ".join(sentences), UndecidedWarning, stacklevel=stacklevel)
        return Outcome("unknown", tuple(bounds), message)
    if verdict == "unknown":
        message += "\nmeasure more prompts (--prompts), or pass allow_unknown=True to let it be"
    raise AssertionError(message)


def _first(bounds: Sequence[Bound]) -> int | None:
    """The first step of the worst verdict."""
    verdict = worst(bound.verdict for bound in bounds)
    steps = [bound.offending_step for bound in bounds if bound.verdict == verdict]
    return min((step for step in steps if step is not None), default=None)
