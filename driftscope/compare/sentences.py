"""What the differences mean, a sentence per quantity, and one for the whole."""

from __future__ import annotations

from collections.abc import Sequence

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
    return f"{_capital(_clause(FACTORS[factor], part, effect))}."


def factorial(part: Compared) -> str:
    """Simple effects where the switches interact, otherwise the average of each over the other."""
    label = part.quantity.label
    joint = part.effect("interaction")
    main = [(FACTORS[name], part.effect(name)) for name in FACTORS]
    told = [(name, effect) for name, effect in main if effect is not None]
    if joint is None or len(told) < len(main):
        return f"{_capital(label)} has no effects: not measured in all four, or beyond the range in one."
    if joint.direction == "unknown":
        return f"{_capital(label)}: without intervals, which need {MIN_PROMPTS} prompts, no effect can be told from chance."
    if joint.direction != "none":
        simple = {(effect.name, effect.given): change(part, effect) for effect in part.effects}
        return (
            f"The two do not add up on {label} (interaction {change(part, joint, bare=True)}): post-norm changes it"
            f" {simple['carry', WITHOUT]} without FC-norm and {simple['carry', WITH]} with it, FC-norm"
            f" {simple['fc_norm', PRE]} under the pre-norm carry and {simple['fc_norm', POST]} under the post-norm one."
        )
    if any(effect.direction in ("up", "down") for _, effect in told):
        clauses = listed([_clause(name, part, effect) for name, effect in told])
        return f"{_capital(clauses)}; {_held('the interaction', part, joint)}."
    held = [_held(name, part, effect) for name, effect in (*told, ("the interaction", joint))]
    return f"No effect on {label} can be told: {listed(held)}."


def _held(name: str, part: Compared, effect: Effect) -> str:
    return f"{name} ({change(part, effect, bare=True)}) holds {effect.null:g}"


def _clause(name: str, part: Compared, effect: Effect) -> str:
    label = part.quantity.label
    if effect.direction == "unknown":
        return f"{name} changes {label} {change(part, effect)}, without an interval to tell it from chance"
    if effect.direction == "none":
        return f"no effect of {name} on {label} can be told ({change(part, effect, bare=True)}, holds {effect.null:g})"
    verb = "raises" if effect.direction == "up" else "lowers"
    return f"{name} {verb} {label} ({change(part, effect, bare=True)})"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _sized(part: Compared, effect: Effect) -> str:
    """`norm growth (x0.28)`, `cost of drift (-0.09 tokens)`, for the headline."""
    factor = effect.null == 1.0
    digits = 3 if part.quantity.unit == "share a step" else 2
    unit = " tokens" if part.quantity.unit == "tokens" else ""
    return (
        f"{part.quantity.label} ({'x' if factor else ''}{plain(effect.interval.mean, digits, sign=not factor)}{unit})"
    )


def headline(design: Design, compared: Sequence[Compared], runs: Sequence[str]) -> str:
    """The answer in one or two sentences."""
    if design.kind == "factorial":
        parts = [_answer(name, compared) for name in ("carry", "fc_norm")]
        return f"{scope(design)}, {'; '.join(parts)} ({coverage(design)})."
    if design.kind == "one switch":
        name = design.factor
        moved = _moved(compared, runs, "" if not design.repeated else name)
        what = _list_of(moved) or "moves no figure by more than chance"
        also = " if that is all that differs in their training" if not design.others else ""
        caveat = f"; they also differ in {', '.join(design.others)}, so it may be due to that" if design.others else ""
        return f"{scope(design)}, {FACTORS[name]} {what}{also}{caveat} ({coverage(design)})."
    if design.kind == "both switches":
        return (
            "These two checkpoints differ in both FC-norm and the carry: what differs between them cannot be attributed"
            " to one. A checkpoint with only one of the two would tell."
        )
    if design.kind == "same switches":
        return (
            "These two checkpoints have the same FC-norm and carry: what differs comes from weights or other switches."
        )
    if design.kind == "different kinds" and len(runs) == 2:
        # Attention is measured against another baseline in a block.
        told = [part for part in compared if part.quantity.name not in ("displacement", "self_excess_slope")]
        what = _list_of(_moved(told, runs)) or "moves no figure by more than chance"
        return (
            f"One of these two checkpoints drafts step by step, the other all steps at once. Against {runs[0]}, {runs[1]}"
            f" {what} ({coverage(design)})."
        )
    if design.kind == "different kinds":
        return f"{len(runs)} checkpoints, each against {runs[0]}; some draft step by step, others all steps at once."
    return f"{len(runs)} checkpoints, each against {runs[0]}. They are not the four of FC-norm x carry, so no effects are given."


def _answer(name: str, compared: Sequence[Compared]) -> str:
    """What one switch does across the quantities, by direction."""
    moved: dict[str, list[str]] = {"lowers": [], "raises": [], "depends": []}
    for part in compared:
        simple = [effect for effect in part.effects if effect.name == name and effect.given]
        main, joint = part.effect(name), part.effect("interaction")
        if not part.quantity.key or main is None or joint is None:
            continue
        directions = {effect.direction for effect in simple}
        if joint.direction in ("up", "down") and directions not in ({"up"}, {"down"}):
            if directions & {"up", "down"}:
                moved["depends"].append(part.quantity.label)
        elif main.direction in ("up", "down"):
            moved["raises" if main.direction == "up" else "lowers"].append(_sized(part, main))
    clauses = [f"{verb} {listed(labels)}" for verb, labels in moved.items() if labels and verb != "depends"]
    if moved["depends"]:
        other = "FC-norm" if name == "carry" else "the carry"
        clauses.append(f"has an effect on {listed(moved['depends'])} that depends on {other}")
    return f"{FACTORS[name]} {listed(clauses) if clauses else 'moves no figure by more than chance'}"


def _moved(compared: Sequence[Compared], runs: Sequence[str], factor: str = "") -> dict[str, list[str]]:
    """What differs between the first two runs, or by a factor of cells with several trainings."""
    moved: dict[str, list[str]] = {"lowers": [], "raises": []}
    for part in compared:
        effect = part.effect(factor) if factor else part.differences.get(runs[1])
        if part.quantity.key and effect is not None and effect.direction in ("up", "down"):
            moved["raises" if effect.direction == "up" else "lowers"].append(_sized(part, effect))
    return moved


def _list_of(moved: dict[str, list[str]]) -> str:
    clauses = [f"{verb} {listed(labels)}" for verb, labels in moved.items() if labels]
    return listed(clauses) if clauses else ""
