"""The answer of a comparison in a few sentences: what drift costs first, where that was measured, then what else moves."""

from __future__ import annotations

from collections.abc import Sequence

from driftscope.compare.costs import PATHS
from driftscope.compare.design import FACTORS, Design
from driftscope.compare.effects import POST, PRE, WITH, WITHOUT
from driftscope.compare.model import Compared, Effect
from driftscope.compare.sentences import capital, change, coverage, scope
from driftscope.findings.words import listed, plain

COST = "drift_cost"
_GIVEN = {WITHOUT: "without FC-norm", WITH: "with it", PRE: "under the pre-norm carry", POST: "under the post-norm one"}


def headline(design: Design, compared: Sequence[Compared], runs: Sequence[str]) -> str:
    """The answer in one or two sentences."""
    if design.kind == "factorial":
        first = cost_answer(compared)
        rest = [
            part for part in compared if not first or part.quantity.name.removeprefix("cost_") not in (COST, *PATHS)
        ]
        parts = "; ".join(_switch(name, rest) for name in ("carry", "fc_norm"))
        return f"{scope(design)}, {first and f'{first} '}{capital(parts) if first else parts} ({coverage(design)})."
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


def _switch(name: str, compared: Sequence[Compared]) -> str:
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


def cost_answer(compared: Sequence[Compared]) -> str:
    """What drift costs in the four of a 2 x 2, and which switch changes that, through which path.

    Args:
        compared: The quantities of a comparison.

    Returns:
        Sentences that end with a stop; "" where it was not measured in all four, or without intervals.
    """
    by_name = {part.quantity.name: part for part in compared}
    cost = by_name.get(COST)
    if cost is None or not cost.values:
        return ""
    clauses = [_cost_clause(name, cost, by_name) for name in ("carry", "fc_norm")]
    if not all(clauses):
        return ""
    ends = sorted(plain(interval.mean, 2) for interval in (cost.cells or cost.values).values())
    size = ends[0] if ends[0] == ends[-1] else f"{ends[0]} to {ends[-1]}"
    return f"drift costs {size} accepted tokens. {capital('; '.join(clauses))}."


def _cost_clause(name: str, cost: Compared, by_name: dict[str, Compared]) -> str:
    """What one switch does to the cost of drift."""
    main, joint = cost.effect(name), cost.effect("interaction")
    if main is None or joint is None or "unknown" in (main.direction, joint.direction):
        return ""
    label = FACTORS[name]
    simple = [effect for effect in cost.effects if effect.name == name and effect.given]
    if joint.direction != "none" and any(effect.direction in ("up", "down") for effect in simple):
        told = [f"{change(cost, effect)} {_GIVEN[effect.given]}" for effect in simple]
        return f"{label} changes that {listed(told)}"
    paths = _paths(name, by_name)
    if main.direction not in ("up", "down"):
        untold = f"no effect of {label} on it can be told ({change(cost, main, bare=True)})"
        return f"{untold}, though it changes what is lost {listed(paths)}" if paths else untold
    verb = "raises" if main.direction == "up" else "lowers"
    return f"{label} {verb} that by {_size(main)}{f', {listed(paths)}' if paths else ''}"


def _paths(name: str, by_name: dict[str, Compared]) -> list[str]:
    """What one switch does to each path's part of the cost, where its interval excludes 0: `through attention (+0.06)`."""
    effects = ((words, by_name.get(f"cost_{path}")) for path, words in PATHS.items())
    told = ((words, _alike(part, name)) for words, part in effects if part is not None)
    return [
        f"through {words} ({plain(effect.interval.mean, 2, sign=True)})"
        for words, effect in told
        if effect is not None and effect.direction in ("up", "down")
    ]


def _size(effect: Effect) -> str:
    """`0.34 (95% 0.30 to 0.38)` of an effect whose sign the verb tells."""
    low, high = sorted(abs(end) for end in (effect.interval.low, effect.interval.high) if end is not None)
    return f"{plain(abs(effect.interval.mean), 2)} (95% {plain(low, 2)} to {plain(high, 2)})"


def _alike(part: Compared, name: str) -> Effect | None:
    """The main effect, where the two switches add up."""
    joint = part.effect("interaction")
    return part.effect(name) if joint is not None and joint.direction == "none" else None


def _sized(part: Compared, effect: Effect) -> str:
    """`norm growth (x0.28)`, `cost of drift (-0.09 tokens)`, for the headline."""
    factor = effect.null == 1.0
    digits = 3 if part.quantity.unit == "share a step" else 2
    unit = " tokens" if part.quantity.unit == "tokens" else ""
    return (
        f"{part.quantity.label} ({'x' if factor else ''}{plain(effect.interval.mean, digits, sign=not factor)}{unit})"
    )
