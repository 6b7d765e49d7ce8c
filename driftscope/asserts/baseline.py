"""A drafter must not be worse than another one on the same texts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from driftscope import stats
from driftscope.asserts.bounds import Bound, Figure
from driftscope.asserts.findings import codes_of
from driftscope.asserts.outcome import Outcome, conclude
from driftscope.compare.captures import common_prompts
from driftscope.compare.comparing import unique_names
from driftscope.compare.design import design
from driftscope.compare.effects import compare_samples
from driftscope.compare.model import Compared
from driftscope.compare.samples import common_depth, samples
from driftscope.errors import RunError
from driftscope.findings.measured import Measured
from driftscope.findings.withheld import withheld
from driftscope.runs.run import Run
from driftscope.stats.intervals import Interval

MARGINS: Mapping[str, float] = {
    "growth": 1.1,
    "displacement": 0.05,
    "self_excess_slope": 0.01,
    "served": 0.05,
    "agreement_kept": 0.05,
    "noise_half_point": 1.25,
}
"""How much worse still counts as not worse: factors for growth and the noise half point, a share of the baseline's length
for `served`, plain shares (a step) for the rest."""
_BY_STEP = {"growth": "log_growth", "displacement": "displacement"}
_CODES = {"growth": "DS101", "displacement": "DS102", "self_excess_slope": "DS102", "noise_half_point": "DS104"}


def assert_not_worse(
    run: Run,
    baseline: Run | str | Path,
    *,
    margins: Mapping[str, float] = MARGINS,
    depth: int | None = None,
    allow_unknown: bool = False,
) -> Outcome:
    """No quantity in `margins` is worse than the baseline's by more than its margin, as paired differences over prompts.

    A quantity that only one of the two holds is not judged.

    Args:
        run: the run.
        baseline: a run on the same texts, or its folder.
        margins: by the names of `driftscope.compare`, in the unit of each.
        depth: steps; None is as many as both hold.
        allow_unknown: warn where too few prompts were measured to tell, instead of failing.

    Returns:
        What was found.

    Raises:
        AssertionError: a quantity is worse, or it cannot be told.
        CompareError: the runs did not measure the same texts.
        RunError: a margin without a quantity.
    """
    __tracebackhide__ = True
    reference = baseline if isinstance(baseline, Run) else Run.open(baseline)
    if why := withheld(reference.info.trust):
        raise RunError(f"baseline {reference.folder} is none to compare with: {why}; probe a trained drafter for it")
    runs = [reference, run]
    names = unique_names(runs)
    prompts, _ = common_prompts(runs, names)
    held = common_depth(runs)
    if depth is not None and depth > held:
        raise RunError(f"both runs hold {held} steps, {depth} asked: probe again with --depth {depth}")
    depth = depth or held
    by_run = [samples(part, prompts, depth) for part in runs]
    compared = {
        part.quantity.name: part
        for part in compare_samples(by_run, names, design(runs), stats.RESAMPLES)
        if part.values
    }
    unknown = [name for name in margins if name not in MARGINS and name not in compared]
    if unknown:
        raise RunError(f"no quantity {unknown[0]} to compare; there are {', '.join(compared)}")
    judged = {name: part for name, part in compared.items() if name in margins and names[1] in part.differences}
    if not judged:
        raise RunError(
            f"{run.folder} and {reference.folder} hold none of {', '.join(margins)} both: nothing to compare"
        )
    bounds = [_bound(part, margins[name], names, len(prompts)) for name, part in judged.items()]
    wrong = [name for name, bound in zip(judged, bounds, strict=True) if bound.verdict != "passed"]
    codes = tuple(dict.fromkeys(_CODES[name] for name in wrong if name in _CODES)) or codes_of(run) or ("DS105",)
    step = min((found for name in wrong if (found := _first_worse(runs, name, margins, prompts, depth))), default=None)
    reason = f"the first beyond the margin against {names[0]}"
    return conclude(run, bounds, codes=codes, allow_unknown=allow_unknown, depth=depth, step=step, reason=reason)


def _first_worse(
    runs: Sequence[Run], name: str, margins: Mapping[str, float], prompts: Sequence[str], depth: int
) -> int | None:
    """The first step at which a quantity with a value at every step is beyond its margin."""
    if name not in _BY_STEP:
        return None
    column = _BY_STEP[name]
    limit = math.log(margins[name]) if name == "growth" else margins[name]
    values = []
    for run in runs:
        figures = Measured(run, depth=depth).drafted
        assert figures is not None  # the runs have been compared
        rows = pd.DataFrame(figures.means[column], index=figures.prompts)
        values.append(rows.reindex(prompts).to_numpy())
    beyond = stats.paired_difference(values[1], values[0]).low > limit
    return int(beyond.argmax()) + 1 if beyond.any() else None


def _bound(part: Compared, margin: float, names: list[str], prompts: int) -> Bound:
    """How much worse the run is, as a number that must stay at or within the margin."""
    quantity, effect = part.quantity, part.differences[names[1]]
    interval = effect.interval
    label = f"{quantity.label} against {names[0]}:"
    lower = quantity.better == "lower"
    if quantity.scale == "log":
        limit = margin if lower else 1 / margin
        return Bound(label, limit, (Figure(interval),), "at most" if lower else "at least", "x", prompts)
    if quantity.unit == "tokens":
        base = part.values[names[0]].mean
        if not base > 0:
            return Bound(label, -math.inf, (Figure(interval),), "at least", " tokens", prompts, sign=True)
        ends = (None if end is None else end / base for end in (interval.low, interval.high))
        relative = Interval(interval.mean / base, *ends)
        return Bound(f"{label} change", -margin, (Figure(relative),), "at least", "", prompts, sign=True)
    kind, limit = ("at most", margin) if lower else ("at least", -margin)
    return Bound(label, limit, (Figure(interval),), kind, "", prompts, sign=True)  # type: ignore[arg-type]
