"""The onsets of a run in plain words. Nothing is measured here: every figure comes from the summary."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from driftscope.findings.cost import DriftCost
from driftscope.findings.cost_words import cost_sentence, moves_sentence
from driftscope.findings.withheld import withheld
from driftscope.findings.words import listed, spread_text
from driftscope.stats.drift import PRACTICAL_LOG_RMS, PRACTICAL_MASS
from driftscope.stats.intervals import MIN_PROMPTS

if TYPE_CHECKING:
    from driftscope.findings.causes import Causes

ONSETS = {"norm_up": "norm up", "displaced": "displaced", "self_up": "self up", "sink_down": "sink down"}
"""Key in the summary -> the short name on screens, in the order of the table of words."""
_PARTS = {
    "sink": "the sink",
    "prompt": "the prompt",
    "committed": "committed tokens",
    "drafted": "drafted tokens",
    "current": "the current row",
    "virtual": "the virtual sink",
}
_NOTICEABLE = 0.01
Kind = Literal["drift", "none", "unknown"]
_KINDS: Mapping[str, Kind] = {"costs": "drift", "gains": "none", "nothing": "none"}
"""What is told of the cost -> what that says of drift."""
_POST_NORM = "a post-norm carry keeps its norm by construction, so a flat norm by itself is no proof of health"


@dataclass(frozen=True)
class Reading:
    """What one onset says."""

    key: str
    onset: int | str | None
    """A step, "none", "not measurable", or None where the quantity was not recorded."""
    sentence: str
    low: int | None = None
    """Ends of the onset's spread over resampled prompts; `high` is None where some resamples have no onset."""
    high: int | None = None

    @property
    def name(self) -> str:
        return ONSETS[self.key]

    @property
    def start(self) -> str:
        """The onset with its spread: `step 3 (2 to 5)`, `none`, or `none shown` where some resamples have one."""
        if isinstance(self.onset, int):
            return f"step {self.onset}{spread_text(self.low, self.high, self.onset)}"
        if self.onset == "none" and self.low is not None:
            return "none shown"
        return "not recorded" if self.onset is None else str(self.onset)

    @property
    def found(self) -> bool:
        return isinstance(self.onset, int)


@dataclass(frozen=True)
class Verdict:
    """A sentence, and one reading per onset."""

    kind: Kind
    headline: str
    readings: tuple[Reading, ...]
    cause: str = ""
    """Which of the known causes is seen, and its published remedy, marked as untested."""


def verdict(summary: Mapping[str, Any], causes: Causes | None = None) -> Verdict:
    """The verdict on the drafted feed of a summary (`driftscope.runs.summary.summarise`), with what `causes` says.

    What drift costs comes first where that was measured; then what moves. Without a verdict on drift there is none on its
    cause either.
    """
    found = _verdict(summary)
    measured = DriftCost.from_summary(summary) is not None
    if not summary["steps"]:
        return found
    told = causes is not None and (found.kind == "drift" or (causes.seen and (measured or found.kind == "none")))
    return replace(found, cause=causes.text) if causes is not None and told else found


def _verdict(summary: Mapping[str, Any]) -> Verdict:
    if why := withheld(summary.get("trust")):
        return Verdict("unknown", f"No verdict: {why}.", ())
    steps = summary["steps"]
    switches = summary["checkpoint"].get("switches", {})
    cost = DriftCost.from_summary(summary)
    if steps and switches.get("carry") == "none":
        price = "" if cost is None else f" {cost_sentence(cost, at_once=True)}"
        return Verdict("unknown", _at_once(steps) + price, ())
    if cost is not None and not steps:
        rest = "What moves was not measured: probe norms and attention too."
        return Verdict(_KINDS.get(cost.told, "unknown"), f"{cost_sentence(cost)} {rest}", ())
    if len(steps) < 2:
        text = "No verdict: only step 1 was measured, and drift takes at least two steps." if steps else ""
        return Verdict("unknown", text or f"No verdict: {_not_judged(summary)}.", ())
    readings = _readings(summary, switches.get("carry") == "post")
    moved = _moved(readings, steps, switches.get("carry") == "post", cost)
    if cost is None:
        return Verdict(*moved, readings)
    return Verdict(_KINDS.get(cost.told, "unknown"), f"{cost_sentence(cost)} {moved[1]}", readings)


def _not_judged(summary: Mapping[str, Any]) -> str:
    """Why a summary without clean chains has no verdict."""
    probes = [*(["cost"] if "drift_cost" in summary else []), *summary.get("probes", ())]
    if not probes:
        return "nothing was measured yet"
    asked = "--probes norms,attention,acceptance"
    return f"drift is judged by the undisturbed chains ({asked}), which were not run; measured was {listed(probes)}"


def _readings(summary: Mapping[str, Any], post: bool) -> tuple[Reading, ...]:
    steps = summary["steps"]
    readings = []
    for key in ONSETS:
        onset, spread = summary["onset"].get(key), summary.get("onset_spread", {}).get(key, {})
        low, high = spread.get("low"), spread.get("high")
        if key == "sink_down" and summary["target"].get("sinks") == []:
            readings.append(Reading(key, onset, "the target has no sink position"))
            continue
        sentence = _sentence(key, onset, steps, post)
        if onset == "none" and low is not None:
            sentence += f"; an onset {_from(low, high)} cannot be ruled out"
        readings.append(Reading(key, onset, sentence, low, high))
    return tuple(readings)


def _moved(
    readings: Sequence[Reading], steps: Sequence[Mapping[str, Any]], post: bool, cost: DriftCost | None
) -> tuple[Kind, str]:
    """What moves, from which step on; where its cost is known, also what of it costs nothing."""
    found = {reading.key: reading for reading in readings if reading.found}
    if found:
        if cost is None:
            return "drift", f"Drift starts at {_drift(found, steps)}; what that costs was not measured."
        free = moves_sentence(cost, growth="norm_up" in found, attention=bool(found.keys() - {"norm_up"}))
        return "drift", f"From {_drift(found, steps, ' ')}. {free}".rstrip()
    if any(reading.onset == "none" for reading in readings):
        return "none", _no_drift(readings, steps, post)
    why = _few_prompts(steps) or "no quantity of drift could be measured"
    return "unknown", f"No verdict: {why}." if cost is None else f"What moves could not be measured: {why}."


def _at_once(steps: Sequence[Mapping[str, Any]]) -> str:
    """For a drafter that carries nothing: what takes the verdict's place."""
    text = "Nothing is carried from step to step, so no drift to find: all steps are drafted at once."
    first, last = (figure(steps[place], "acceptance", "conditional") for place in (0, -1))
    if first is None or last is None or len(steps) < 2:
        return text
    return f"{text} Conditional acceptance {first:.2f} at step 1, {last:.2f} at step {steps[-1]['step']}."


def figure(step: Mapping[str, Any], *path: str) -> float | None:
    """The mean of a figure, None where it was not measured."""
    value = _interval(step, path).get("mean")
    return None if value is None or math.isnan(value) else float(value)


def bounds(step: Mapping[str, Any], *path: str) -> tuple[float, float] | None:
    """The 95% interval of a figure, None where it has none."""
    interval = _interval(step, path)
    ends = interval.get("low"), interval.get("high")
    if any(end is None or math.isnan(end) for end in ends):
        return None
    return float(ends[0]), float(ends[1])  # type: ignore[arg-type]


def _interval(step: Mapping[str, Any], path: Sequence[str]) -> Mapping[str, Any]:
    value: Any = step
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def _drift(found: Mapping[str, Reading], steps: Sequence[Mapping[str, Any]], between: str = ": ") -> str:
    """`step 2: ... and ...; from step 4 (3 to 5) ...`."""
    clauses = []
    for step in sorted({reading.onset for reading in found.values() if isinstance(reading.onset, int)}):
        here = [key for key in ONSETS if key in found and found[key].onset == step]
        # What attention moved to or from says more than that it moved.
        if {"self_up", "sink_down"} & set(here):
            here = [key for key in here if key != "displaced"]
        # Of several, the one that is known least.
        widest = max((found[key] for key in here), key=lambda part: (part.high or len(steps) + 1) - (part.low or step))
        clauses.append((widest.start, _join([_clause(key, steps) for key in here])))
    first, *later = clauses
    return "; ".join([f"{first[0]}{between}{first[1]}", *(f"from {start} {clause}" for start, clause in later)])


def _from(low: int, high: int | None) -> str:
    if low == high:
        return f"at step {low}"
    return f"from step {low} on" if high is None else f"at step {low} to {high}"


def _clause(key: str, steps: Sequence[Mapping[str, Any]]) -> str:
    last, number = steps[-1], steps[-1]["step"]
    if key == "norm_up":
        return f"the carried state's norm grows ({_plain(figure(last, 'growth'))}x at step {number})"
    if key == "self_up":
        more = _plain(figure(last, "excess", "self_generated"), sign=True)
        return f"attention moves to the drafter's own tokens ({more} at step {number})"
    if key == "sink_down":
        start, end = figure(steps[0], "mass", "sink"), figure(last, "mass", "sink")
        return f"the sink loses attention ({_plain(start)} at step 1, {_plain(end)} at step {number})"
    return f"attention is displaced ({_plain(figure(last, 'displacement'))} of it at step {number})"


def _no_drift(readings: Sequence[Reading], steps: Sequence[Mapping[str, Any]], post: bool) -> str:
    last = steps[-1]
    flat = {reading.key for reading in readings if reading.onset == "none"}
    blind = [reading for reading in readings if reading.onset != "none"]
    parts = []
    if "displaced" in flat:
        value = _plain(figure(last, "displacement"))
        parts.append(f"attention stays where it is without drafting (displacement {value} at step {last['step']})")
    elif "self_up" in flat:
        more = _plain(figure(last, "excess", "self_generated"), sign=True)
        parts.append(f"its own tokens draw no extra attention ({more} at step {last['step']})")
    elif "sink_down" in flat:
        parts.append(f"the sink keeps its attention ({_plain(figure(last, 'mass', 'sink'))} at step {last['step']})")
    if "norm_up" in flat and not (post and parts):
        growth = figure(last, "growth")
        verb = "shrinks" if growth is not None and growth < math.exp(-PRACTICAL_LOG_RMS) else "does not grow"
        parts.append(f"the carried state's norm {verb} ({_plain(growth)}x at step {last['step']})")
    limit = " in what could be measured" if blind else ""
    text = f"No drift found up to step {last['step']}{limit}: {_join(parts)}"
    return f"{text}; {_POST_NORM}." if post and "norm_up" in flat else f"{text}."


def _sentence(key: str, onset: int | str | None, steps: Sequence[Mapping[str, Any]], post: bool) -> str:
    if onset is None:
        return "not recorded"
    if onset == "not measurable" and not _few_prompts(steps):
        return _why_not(key, steps)
    last, number = steps[-1], steps[-1]["step"]
    words = {"norm_up": _norm, "displaced": _displaced, "self_up": _self, "sink_down": _sink}
    text = words[key](steps, onset)
    if onset == "none" and _beyond_somewhere(key, steps):
        text += f"; beyond the threshold at some step, but not to the end (step {number})"
    if key == "norm_up" and post and onset == "none" and figure(last, "growth") is not None:
        text += "; post-norm carry: flat by construction"
    return text


def _norm(steps: Sequence[Mapping[str, Any]], onset: int | str) -> str:
    last = steps[-1]
    text = _figure(last, "x", "growth")
    matched = figure(last, "matched_growth")
    if matched is None:
        return text
    only = "but only " if isinstance(onset, int) and matched < math.exp(PRACTICAL_LOG_RMS) else ""
    return f"{text}, {only}{matched:.2f}x against no drafting"


def _displaced(steps: Sequence[Mapping[str, Any]], onset: int | str) -> str:
    last = steps[-1]
    text = _figure(last, " of a head's attention", "displacement")
    moves = {part: figure(last, "excess", part) for part in _PARTS}
    known = {part: value for part, value in moves.items() if value is not None}
    if not known or not isinstance(onset, int):
        return text
    gain, loss = max(known, key=known.__getitem__), min(known, key=known.__getitem__)
    if known[gain] > _NOTICEABLE and known[loss] < -_NOTICEABLE:
        return f"{text}; most from {_PARTS[loss]} ({known[loss]:+.2f}), to {_PARTS[gain]} ({known[gain]:+.2f})"
    return f"{text}; heads move in opposite directions, on balance no part gains or loses"


def _self(steps: Sequence[Mapping[str, Any]], onset: int | str) -> str:
    last = steps[-1]
    text = _figure(last, "", "excess", "self_generated", sign=True)
    mass = figure(last, "mass", "self_generated")
    return f"{text} against no drafting" + ("" if mass is None else f"; in all {_plain(mass)} of attention")


def _sink(steps: Sequence[Mapping[str, Any]], onset: int | str) -> str:
    last = steps[-1]
    text = f"{_figure(last, ' of attention', 'mass', 'sink')}, {_plain(figure(steps[0], 'mass', 'sink'))} at step 1"
    more = figure(last, "excess", "sink")
    return text if more is None else f"{text}; {_plain(more, sign=True)} against no drafting"


def _why_not(key: str, steps: Sequence[Mapping[str, Any]]) -> str:
    sink = figure(steps[0], "mass", "sink")
    if key == "sink_down" and sink is not None and sink < PRACTICAL_MASS:
        return f"the sink has only {sink:.3f} of attention at step 1, less than the change that would count"
    if key == "self_up" and all(bounds(step, "excess", "self_generated") for step in steps[1:]):
        return "these positions have nearly all attention without drafting: no room for more"
    return "a step has too few prompts for an interval"


def _few_prompts(steps: Sequence[Mapping[str, Any]]) -> str | None:
    """In words, where no figure of drift has an interval."""
    paths = (("growth",), ("displacement",), ("mass", "sink"))
    if any(bounds(step, *path) for step in steps for path in paths):
        return None
    return f"too few prompts for intervals (at least {MIN_PROMPTS} are needed)"


def _beyond_somewhere(key: str, steps: Sequence[Mapping[str, Any]]) -> bool:
    def values(*path: str) -> list[float]:
        found = (figure(step, *path) for step in steps)
        return [value for value in found if value is not None]

    if key == "norm_up":
        return any(value > math.exp(PRACTICAL_LOG_RMS) for value in values("growth"))
    if key == "sink_down":
        sink = values("mass", "sink")
        return any(sink[0] - value > PRACTICAL_MASS for value in sink[1:])
    path = ("displacement",) if key == "displaced" else ("excess", "self_generated")
    return any(value > PRACTICAL_MASS for value in values(*path))


def _plain(value: float | None, *, sign: bool = False) -> str:
    if value is None:
        return "not measured"
    # Rounding must not print a minus in front of zero.
    return f"{round(value, 2) + 0.0:{'+' if sign else ''}.2f}"


def _figure(step: Mapping[str, Any], unit: str, *path: str, sign: bool = False) -> str:
    """A figure with its step and its interval."""
    value, ends = figure(step, *path), bounds(step, *path)
    text = f"{_plain(value, sign=sign)}{unit if value is not None else ''} at step {step['step']}"
    if value is None or ends is None:
        return text
    return f"{text} (95% {_plain(ends[0], sign=sign)} to {_plain(ends[1], sign=sign)})"


def _join(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
