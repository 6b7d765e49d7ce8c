"""DS102: attention leaves where it lies without drafting."""

from __future__ import annotations

from driftscope import stats
from driftscope.figures.pin import pin_figures
from driftscope.findings.advice import DRIFT_PAPER, EAGLE31, PIN, TTT
from driftscope.findings.cost import costs_nothing
from driftscope.findings.cost_words import path_clause
from driftscope.findings.measured import AT_ONCE, Measured, interval_of
from driftscope.findings.model import Coded, Definition, Evidence, Finding, NotMeasured, Threshold
from driftscope.findings.registry import definition
from driftscope.findings.words import listed, with_interval
from driftscope.runs.summary import FeedFigures
from driftscope.stats.intervals import Floats, Interval

CODE = "DS102"
PATH = "pattern"
"""The path through which a moved attention can cost anything."""
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
    statement = f"Attention moves from step {start} on: {listed(clauses)} at step {figures.depth}{shape}"
    statement += f"; {path_clause(measured.cost, PATH)}."
    about = definition(CODE)
    free = costs_nothing(measured.cost, PATH)
    return Finding(CODE, about.title, statement, (*evidence, *more), about.advice, start, free)


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
    """Whether it happened at once, at step 2, or from step to step; of the first figure that moved.

    It grows from step to step only where the slope over the later half of the steps, too, has an interval beyond 0: a quantity
    that moves in the first steps and then holds has a slope over all of them.
    """
    columns = {"displaced": "displacement", "self_up": "excess/self_generated", "sink_down": "mass/sink"}
    names = {"displaced": "displacement", "self_up": "self-generated excess", "sink_down": "sink mass"}
    key = next(key for key in _KEYS if key in starts)
    values: Floats = figures.means[columns[key]]
    jump, slope, late = (measured.mean(shape(values)) for shape in (stats.jump, stats.slope, stats.late_slope))
    depth, half = figures.depth, figures.depth // 2 + 1
    told = [
        (f"jump of {names[key]}, step 1 to 2", jump, "share"),
        (f"slope of {names[key]}, steps 2 to {depth}", slope, "share a step"),
        (f"slope of {names[key]}, steps {half} to {depth}", late, "share a step"),
    ]
    evidence = [measured.evidence(name, figure, unit=unit) for name, figure, unit in told if figure is not None]
    if jump is None or slope is None or slope.low is None:
        return "", evidence
    sign = -1.0 if key == "sink_down" else 1.0
    if not _beyond(slope, sign):
        once = abs(jump.mean) >= measured.thresholds["displacement"]
        return ", all of it in one jump at step 2" if once else "", evidence
    if late is None or late.low is None:
        return "", evidence
    return ", and it grows from step to step" if _beyond(late, sign) else f", most of it by step {half - 1}", evidence


def _beyond(figure: Interval, sign: float) -> bool:
    """Whether the whole interval lies on that side of 0."""
    ends = [end for end in (figure.low, figure.high) if end is not None]
    return len(ends) == 2 and min(sign * end for end in ends) > 0


FINDINGS = (
    Coded(
        Definition(
            "DS102",
            "Attention drift",
            meaning="Within a chain, the drafter's attention leaves where it lies without drafting: it moves off the"
            " target's sink or onto tokens that the drafter itself wrote, so that an early mistake is read again by every"
            " later step.",
            measured="Three figures, each against step 1 with an interval over prompts and persistence to the last step:"
            " displacement (half the change over the parts of the context, per head, each part with the sign that the other"
            " prompts agree on, then the mean over heads: mere scatter gives 0), the excess"
            " on the chain's own rows, and the raw mass on the sink. Excess and displacement are against rows at the same"
            " positions made from real target features, so a drafter that always reads recent tokens does not count as"
            " drifting. A jump at step 2 without a slope after it is the crossing from prefill to draft; it is said to grow"
            " from step to step only where the slope over the later half of the steps has an interval beyond 0 too.",
            limits="A moved attention need not cost acceptance: where the cost probe was run and drift costs nothing through"
            " the attention pattern, this is a note, not a finding."
            " Heads may move in opposite directions; displacement counts them, the signed figures do not.",
            advice=(
                EAGLE31,
                PIN,
                TTT,
                "driftscope probe CHECKPOINT --probes length: whether a window with the sink kept in view holds acceptance.",
            ),
            thresholds=("displacement", "self_excess", "sink_loss"),
            probes=("attention",),
            sources=(DRIFT_PAPER,),
        ),
        drift,
        (
            Threshold(
                "displacement",
                0.05,
                "share of a head's attention that moved against no drafting",
                "What displacement reads where nothing drifts: the example drafters against themselves, under other prompts and in"
                " the other half of each text, read less than .053 in 99 of 100 draws of half the prompts of a run"
                " (benchmarks/displacement_null.py), and a finding takes an interval beyond it. Published tables give raw masses,"
                " which are another quantity.",
                below=1.0,
            ),
            Threshold(
                "self_excess",
                0.05,
                "attention on the chain's own rows beyond that without drafting",
                "As for displacement: where nothing drifts, less than .044 in 99 of 100 draws (benchmarks/displacement_null.py).",
                below=1.0,
            ),
            Threshold(
                "sink_loss",
                0.05,
                "attention that the sink loses against step 1",
                f"As for displacement: the sink goes from .46 to .08 in the published pre-norm drafter, from .11 to .10 in the"
                f" post-norm one ({DRIFT_PAPER}).",
                below=1.0,
            ),
        ),
    ),
)
"""What is looked for here: its words, its rule, and its limits with the reason for each default."""
