"""What the differences mean, a sentence per quantity, and one for the whole."""

from __future__ import annotations

from collections.abc import Sequence

from driftscope.compare.design import FACTORS, Design
from driftscope.compare.effects import POST, PRE, WITH, WITHOUT
from driftscope.compare.model import Compared, Effect
from driftscope.findings.words import listed, plain
from driftscope.stats.intervals import MIN_PROMPTS

FOUR = "For these four checkpoints"
COVERAGE = "the intervals cover prompts, not training runs"


def change(effect: Effect, *, bare: bool = False) -> str:
    """`by +0.12 (95% +0.08 to +0.15)`, or `by a factor of 0.56 (...)` on the log scale."""
    factor = effect.null == 1.0
    sign = not factor
    text = plain(effect.interval.mean, sign=sign)
    if not bare:
        text = f"by a factor of {text}" if factor else f"by {text}"
    low, high = effect.interval.low, effect.interval.high
    if low is None or high is None:
        return text
    return f"{text} (95% {plain(low, sign=sign)} to {plain(high, sign=sign)})"


def one_switch(part: Compared, factor: str, effect: Effect) -> str:
    """The effect of one switch between two checkpoints."""
    return f"{_clause(FACTORS[factor], part, effect)}."


def factorial(part: Compared) -> str:
    """Simple effects where the switches interact, otherwise the average of each over the other."""
    label = part.quantity.label
    joint = part.effect("interaction")
    main = {name: part.effect(name) for name in FACTORS}
    if joint is None or any(effect is None for effect in main.values()):
        missing = "not measured in all four, or beyond the range in one"
        return f"{label[0].upper()}{label[1:]}: no effects; {missing}."
    if joint.direction == "unknown":
        return f"{label[0].upper()}{label[1:]}: no effect can be told from chance without intervals, which need {MIN_PROMPTS} prompts."
    if joint.direction != "none":
        post = [part.effect("carry", given) for given in (WITHOUT, WITH)]
        own = [part.effect("fc_norm", given) for given in (PRE, POST)]
        if None not in (*post, *own):
            return (
                f"The two do not add up on {label} (interaction {change(joint, bare=True)}): post-norm changes it"
                f" {change(post[0])} without FC-norm and {change(post[1])} with it, FC-norm {change(own[0])} under the"  # type: ignore[arg-type]
                f" pre-norm carry and {change(own[1])} under the post-norm one."  # type: ignore[arg-type]
            )
    clauses = [_clause(FACTORS[name], part, effect) for name, effect in main.items() if effect is not None]
    moved = [effect for effect in main.values() if effect is not None and effect.direction in ("up", "down")]
    if not moved:
        return f"No effect on {label} can be told: {_held(main['fc_norm'], 'FC-norm')}, {_held(main['carry'], 'post-norm')}, and {_held(joint, 'the interaction')}."
    return f"{listed(clauses)}; {_held(joint, 'the interaction')}."


def _held(effect: Effect | None, name: str) -> str:
    assert effect is not None
    return f"{name} {change(effect, bare=True)} holds {effect.null:g}"


def _clause(name: str, part: Compared, effect: Effect) -> str:
    label = part.quantity.label
    if effect.direction == "unknown":
        return f"{name}: {label} changes {change(effect)}, without an interval"
    if effect.direction == "none":
        return f"no effect of {name} on {label} can be told ({change(effect, bare=True)} holds {effect.null:g})"
    verb = "raises" if effect.direction == "up" else "lowers"
    return f"{name} {verb} {label} {change(effect)}"


def headline(design: Design, compared: Sequence[Compared], runs: Sequence[str]) -> str:
    """The answer in one or two sentences."""
    if design.kind == "factorial":
        parts = [_answer(name, compared) for name in ("carry", "fc_norm")]
        return f"{FOUR}, {'; '.join(parts)} ({COVERAGE})."
    if design.kind == "one switch":
        name = FACTORS[design.factor]
        moved = _moved(compared, runs)
        what = _list_of(moved) or "moves no figure by more than chance"
        also = " if that is all that differs in their training" if not design.others else ""
        caveat = f"; they also differ in {', '.join(design.others)}, so it may be due to that" if design.others else ""
        return f"Between these two checkpoints, {name} {what}{also}{caveat} ({COVERAGE})."
    if design.kind == "both switches":
        return (
            "These two checkpoints differ in both FC-norm and the carry: what differs between them cannot be attributed"
            " to one. A checkpoint with only one of the two would tell."
        )
    if design.kind == "same switches":
        return (
            "These two checkpoints have the same FC-norm and carry: what differs comes from weights or other switches."
        )
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
            moved["raises" if main.direction == "up" else "lowers"].append(part.quantity.label)
    clauses = [f"{verb} {listed(labels)}" for verb, labels in moved.items() if labels and verb != "depends"]
    if moved["depends"]:
        other = "FC-norm" if name == "carry" else "the carry"
        clauses.append(f"has an effect on {listed(moved['depends'])} that depends on {other}")
    return f"{FACTORS[name]} {listed(clauses) if clauses else 'moves no figure by more than chance'}"


def _moved(compared: Sequence[Compared], runs: Sequence[str]) -> dict[str, list[str]]:
    moved: dict[str, list[str]] = {"lowers": [], "raises": []}
    for part in compared:
        effect = part.differences.get(runs[1])
        if part.quantity.key and effect is not None and effect.direction in ("up", "down"):
            moved["raises" if effect.direction == "up" else "lowers"].append(part.quantity.label)
    return moved


def _list_of(moved: dict[str, list[str]]) -> str:
    clauses = [f"{verb} {listed(labels)}" for verb, labels in moved.items() if labels]
    return listed(clauses) if clauses else ""
