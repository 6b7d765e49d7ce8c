"""What the differences mean, a sentence per quantity."""

from __future__ import annotations

from driftscope.compare.design import FACTORS, Design
from driftscope.compare.effects import POST, PRE, WITH, WITHOUT
from driftscope.compare.model import Compared, Effect
from driftscope.findings.words import listed, plain
from driftscope.stats.intervals import MIN_PROMPTS


def coverage(design: Design) -> str:
    """What the intervals are over."""
    if not design.repeated:
        return "the intervals cover prompts, not training runs"
    counts = [len(group) for group in design.groups]
    told = str(counts[0]) if len(set(counts)) == 1 else f"{min(counts)} to {max(counts)}"
    return f"the intervals cover prompts and training runs, {told} of each"


def scope(design: Design) -> str:
    """`For these four checkpoints`."""
    if design.repeated:
        return f"Over {sum(map(len, design.groups))} training runs of {_CELLS[len(design.groups)]} kinds of drafter"
    return "For these four checkpoints" if design.kind == "factorial" else "Between these two checkpoints"


_CELLS = {2: "two", 4: "four"}


def change(part: Compared, effect: Effect, *, bare: bool = False) -> str:
    """`by +0.12 (95% +0.08 to +0.15)`, or `by a factor of 0.56 (...)` on the log scale; `bare` is `+0.12, 95% ...`."""
    factor = effect.null == 1.0
    digits = 3 if part.quantity.unit == "share a step" else 2
    mean, low, high = (
        None if value is None else plain(value, digits, sign=not factor)
        for value in (effect.interval.mean, effect.interval.low, effect.interval.high)
    )
    ends = "" if low is None or high is None else f"95% {low} to {high}"
    if bare:
        return ", ".join(filter(None, (f"{'x' if factor else ''}{mean}", ends)))
    return f"by {'a factor of ' if factor else ''}{mean}" + (f" ({ends})" if ends else "")


def one_switch(part: Compared, factor: str, effect: Effect) -> str:
    """The effect of one switch between two checkpoints."""
    return f"{capital(clause(FACTORS[factor], part, effect))}."


def factorial(part: Compared) -> str:
    """Simple effects where the switches interact, otherwise the average of each over the other."""
    label = part.quantity.label
    joint = part.effect("interaction")
    main = [(FACTORS[name], part.effect(name)) for name in FACTORS]
    told = [(name, effect) for name, effect in main if effect is not None]
    if joint is None or len(told) < len(main):
        return f"{capital(label)} has no effects: not measured in all four, or beyond the range in one."
    if joint.direction == "unknown":
        return (
            f"{capital(label)}: without intervals, which need {MIN_PROMPTS} prompts, no effect can be told from chance."
        )
    if joint.direction != "none":
        simple = {(effect.name, effect.given): change(part, effect) for effect in part.effects}
        return (
            f"The two do not add up on {label} (interaction {change(part, joint, bare=True)}): post-norm changes it"
            f" {simple['carry', WITHOUT]} without FC-norm and {simple['carry', WITH]} with it, FC-norm"
            f" {simple['fc_norm', PRE]} under the pre-norm carry and {simple['fc_norm', POST]} under the post-norm one."
        )
    if any(effect.direction in ("up", "down") for _, effect in told):
        clauses = listed([clause(name, part, effect) for name, effect in told])
        return f"{capital(clauses)}; {_held('the interaction', part, joint)}."
    held = [_held(name, part, effect) for name, effect in (*told, ("the interaction", joint))]
    return f"No effect on {label} can be told: {listed(held)}."


def _held(name: str, part: Compared, effect: Effect) -> str:
    return f"{name} ({change(part, effect, bare=True)}) holds {effect.null:g}"


def clause(name: str, part: Compared, effect: Effect) -> str:
    label = part.quantity.label
    if effect.direction == "unknown":
        return f"{name} changes {label} {change(part, effect)}, without an interval to tell it from chance"
    if effect.direction == "none":
        return f"no effect of {name} on {label} can be told ({change(part, effect, bare=True)}, holds {effect.null:g})"
    verb = "raises" if effect.direction == "up" else "lowers"
    return f"{name} {verb} {label} ({change(part, effect, bare=True)})"


def capital(text: str) -> str:
    return text[:1].upper() + text[1:]
