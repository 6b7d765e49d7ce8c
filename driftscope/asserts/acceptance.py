"""Enough drafted tokens must be accepted."""

from __future__ import annotations

from typing import Any

import numpy as np

from driftscope.asserts.bounds import Bound, Figure
from driftscope.asserts.findings import codes_of
from driftscope.asserts.outcome import Outcome, conclude
from driftscope.asserts.reading import found, prompts_of
from driftscope.errors import RunError
from driftscope.runs.run import Run

_RATES = np.linspace(0.0, 1.0, 1001)


def assert_acceptance(
    run: Run,
    min_served: float | None = None,
    *,
    min_anchor_mean: float | None = None,
    depth: int | None = None,
    allow_unknown: bool = False,
) -> Outcome:
    """At least so many of `depth` drafted tokens are accepted per round, without the bonus token.

    On a failure the first step is marked whose conditional acceptance lies below the one rate that would reach the length.

    Args:
        run: the run.
        min_served: tokens, over the rounds that an engine serves; what vLLM logs minus 1.
        min_anchor_mean: tokens, over every position of the text outside loops.
        depth: steps; None is all that the run holds.
        allow_unknown: warn where too few prompts were measured to tell, instead of failing.

    Returns:
        What was found.

    Raises:
        AssertionError: fewer are accepted, or it cannot be told.
        RunError: the run holds no such length.
    """
    __tracebackhide__ = True
    wanted = {"served": min_served, "anchor_mean": min_anchor_mean}
    asked = {name: limit for name, limit in wanted.items() if limit is not None}
    if not asked:
        raise RunError("no length asked: give min_served or min_anchor_mean")
    summary = run.summary(depth)
    labels = {"served": "served length is", "anchor_mean": "anchor mean of the accepted length is"}
    bounds = []
    for name, limit in asked.items():
        value = found(summary["acceptance_length"], name)
        if value is None:
            why = "its anchors are not consecutive" if summary["acceptance_length"] else "nothing was measured"
            raise RunError(f"run {run.folder} holds no {name.replace('_', ' ')} length: {why}")
        bounds.append(Bound(labels[name], limit, (Figure(value),), "at least", " tokens", prompts_of(run)))
    step, reason = _weak_step(summary["steps"], max(asked.values()))
    codes = codes_of(run, depth) or ("DS105",)
    return conclude(run, bounds, codes=codes, allow_unknown=allow_unknown, depth=depth, step=step, reason=reason)


def _weak_step(steps: list[dict[str, Any]], length: float) -> tuple[int | None, str]:
    """The first step below the constant rate a with a + a^2 + ... + a^depth = `length`, and that in words."""
    powers = np.cumprod(np.broadcast_to(_RATES, (len(steps), len(_RATES))), axis=0).sum(0)
    rate = float(np.interp(length, powers, _RATES))
    for step in steps:
        value = found(step, "acceptance", "conditional")
        if value is not None and value.mean < rate:
            return step["step"], f"the first below {rate:.2f}, the conditional acceptance that {length:g} tokens take"
    return None, ""
