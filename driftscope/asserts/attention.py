"""Attention must stay where it lies without drafting."""

from __future__ import annotations

import math

import numpy as np

from driftscope import stats
from driftscope.asserts.bounds import Bound, Figure, from_step_2
from driftscope.asserts.outcome import Outcome, conclude
from driftscope.asserts.reading import needed, prompts_of, summary_to
from driftscope.errors import RunError
from driftscope.findings.measured import Measured
from driftscope.findings.thresholds import load
from driftscope.runs.run import Run


def assert_no_attention_drift(
    run: Run,
    *,
    max_displacement: float | None = None,
    max_sink_loss: float | None = None,
    max_self_excess: float | None = None,
    depth: int | None = None,
    allow_unknown: bool = False,
) -> Outcome:
    """Three shares of attention, 0 to 1, stay within their limits at the steps 2 to `depth`.

    None as a limit takes that of the finding DS102, which `[tool.driftscope.thresholds]` sets (0.05); `math.inf` leaves it out.

    Args:
        run: the run.
        max_displacement: half the absolute change over the parts of the context against no drafting, per head, then their mean.
        max_sink_loss: what the sink loses against step 1; not judged where the target has no sink.
        max_self_excess: what the chain's own rows draw beyond no drafting.
        depth: steps; None is all that the run holds.
        allow_unknown: warn where too few prompts were measured to tell, instead of failing.

    Returns:
        What was found.

    Raises:
        AssertionError: a step lies beyond a limit, or cannot be told.
        RunError: the run holds no attention.
    """
    __tracebackhide__ = True
    limits = load()
    displacement, sink_loss, self_excess = (
        limits[name] if given is None else given
        for name, given in (
            ("displacement", max_displacement),
            ("sink_loss", max_sink_loss),
            ("self_excess", max_self_excess),
        )
    )
    steps = summary_to(run, depth)["steps"]
    prompts = prompts_of(run)
    bounds = []
    if math.isfinite(displacement):
        figures = [Figure(needed(run, step, "displacement", "displacement"), step["step"]) for step in steps]
        bounds.append(Bound("displacement", displacement, from_step_2(figures), prompts=prompts))
    if math.isfinite(self_excess):
        path = ("excess", "self_generated")
        figures = [Figure(needed(run, step, "self-generated excess", *path), step["step"]) for step in steps]
        label = "attention on the drafter's own tokens beyond no drafting is"
        bounds.append(Bound(label, self_excess, from_step_2(figures), prompts=prompts, sign=True))
    if math.isfinite(sink_loss) and run.info.target.sinks:
        figures = sink_losses(run, depth)
        bounds.append(Bound("the sink's loss of attention is", sink_loss, from_step_2(figures), prompts=prompts))
    if not bounds:
        raise RunError("no limit is finite: give at least one of max_displacement, max_self_excess and max_sink_loss")
    return conclude(run, bounds, codes=("DS102",), allow_unknown=allow_unknown, depth=depth)


def sink_losses(run: Run, depth: int | None) -> list[Figure]:
    """Mass on the sink at step 1 minus that at each step, paired by prompt."""
    figures = Measured(run, depth=depth).drafted
    if figures is None or "mass/sink" not in figures.means:
        raise RunError(f"run {run.folder} holds no sink mass; probe it with attention among --probes")
    sink = figures.means["mass/sink"]
    losses = stats.bca(np.asarray(sink[:, :1] - sink))
    return [Figure(losses.at(place), place + 1) for place in range(figures.depth)]
