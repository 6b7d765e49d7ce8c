"""DS102: attention leaves where it lies without drafting."""

from __future__ import annotations

import numpy as np

from driftscope import stats
from driftscope.figures.pin import pin_figures
from driftscope.findings.measured import AT_ONCE, Measured, interval_of
from driftscope.findings.model import Evidence, Finding, NotMeasured
from driftscope.findings.registry import definition
from driftscope.findings.words import listed, with_interval
from driftscope.runs.summary import FeedFigures
from driftscope.stats.intervals import Floats, Interval

CODE = "DS102"
_KEYS = ("displaced", "self_up", "sink_down")


def drift(measured: Measured) -> Finding | NotMeasured | None:
    """Displacement, self-generated excess or sink loss beyond the threshold to the last step."""
    if measured.at_once:
        return NotMeasured(CODE, AT_ONCE)
    found = {key: measured.onsets[key] for key in _KEYS if key in measured.onsets}
    if not found:
        return NotMeasured(CODE, "no attention was recorded")
    starts = {key: onset for key, onset in found.items() if isinstance(onset, int)}
    if not starts:
        if all(onset == "not measurable" for onset in found.values()):
            return NotMeasured(CODE, measured.few or "the parts of the context have too little attention to lose")
        return None
    figures = measured.drafted
    assert figures is not None
    clauses, evidence = _figures(measured, figures, starts)
    start = min(starts.values())
    shape, more = _shape(measured, figures, starts)
    more += _from_magnitude(measured)
    statement = f"Attention drifts from step {start} on: {listed(clauses)} at step {figures.depth}{shape}."
    about = definition(CODE)
    return Finding(CODE, about.title, statement, (*evidence, *more), about.advice, start)


def _from_magnitude(measured: Measured) -> list[Evidence]:
    """What the pin of the state at its step-1 RMS says, where it was run."""
    if "pin" not in measured.run.probes:
        return []
    tables = (measured.run.table(name, probe="pin") for name in ("steps", "heads"))
    pin = pin_figures(*tables, resamples=measured.resamples).get("pins", {}).get("step1", {})
    share = interval_of(pin.get("share_from_magnitude"))
    name = "share of the self-generated excess that the magnitude of the state causes"
    return [] if share is None else [measured.evidence(name, share, unit="share")]


def _figures(measured: Measured, figures: FeedFigures, starts: dict[str, int]) -> tuple[list[str], list[Evidence]]:
    """A clause per onset; every figure as evidence, with a threshold on those that crossed it."""
    last, step = measured.summary["steps"][-1], figures.depth
    clauses, evidence = [], []

    def add(key: str, name: str, interval: Interval | None, limit: str, clause: str, *, sign: bool = False) -> None:
        if interval is None:
            return
        crossed = key in starts
        threshold = measured.thresholds[limit] if crossed else None
        evidence.append(measured.evidence(f"{name} at step {step}", interval, unit="share", threshold=threshold))
        if crossed:
            clauses.append(clause.format(with_interval(interval, sign=sign)))

    displacement = interval_of(last.get("displacement"))
    add("displaced", "displacement", displacement, "displacement", "{} of a head's attention is displaced")
    own = interval_of(last.get("excess", {}).get("self_generated"))
    clause = "its own tokens draw {} against no drafting"
    add("self_up", "self-generated excess", own, "self_excess", clause, sign=True)
    sink = figures.means.get("mass/sink")
    if sink is not None:
        change = measured.mean(sink[:, -1] - sink[:, 0])
        add("sink_down", "change of the sink's mass", change, "sink_loss", "the sink changes by {}", sign=True)
    against = interval_of(last.get("excess", {}).get("sink"))
    if against is not None:
        evidence.append(measured.evidence(f"sink excess at step {step}", against, unit="share"))
    return clauses, evidence


def _shape(measured: Measured, figures: FeedFigures, starts: dict[str, int]) -> tuple[str, list[Evidence]]:
    """Whether it happened at once, at step 2, or from step to step; of the first figure that moved."""
    columns = {"displaced": "displacement", "self_up": "excess/self_generated", "sink_down": "mass/sink"}
    names = {"displaced": "displacement", "self_up": "self-generated excess", "sink_down": "sink mass"}
    key = next(key for key in _KEYS if key in starts)
    values: Floats = figures.means[columns[key]]
    jump, slope = measured.mean(stats.jump(values)), measured.mean(stats.slope(values))
    evidence = []
    if jump is not None:
        evidence.append(measured.evidence(f"jump of {names[key]}, step 1 to 2", jump, unit="share"))
    if slope is None or jump is None:
        return "", evidence
    evidence.append(measured.evidence(f"slope of {names[key]}, steps 2 to {figures.depth}", slope, unit="share a step"))
    if slope.low is None or slope.high is None:
        return "", evidence
    flat = slope.low <= 0 <= slope.high or np.sign(slope.mean) != np.sign(values[:, -1].mean() - values[:, 0].mean())
    if flat and abs(jump.mean) >= measured.thresholds["displacement"]:
        return ", all of it in one jump at step 2", evidence
    return ("", evidence) if flat else (", and it grows from step to step", evidence)
