"""Summaries by hand: only what a sentence or a cell is made of."""

from __future__ import annotations

import math
from typing import Any


def interval(mean: float, spread: float | None = 0.01) -> dict[str, float | None]:
    if spread is None:
        return {"mean": mean, "low": None, "high": None}
    return {"mean": mean, "low": mean - spread, "high": mean + spread}


def step(
    number: int,
    *,
    growth: float = 1.0,
    sink: float = 0.4,
    own: float = 0.1,
    excess: float = 0.0,
    displacement: float = 0.0,
    spread: float | None = 0.01,
) -> dict[str, Any]:
    own = own if number > 1 else 0.0
    return {
        "step": number,
        "carry_rms": interval(4.0 * growth, spread),
        "growth": interval(growth, spread),
        "matched_growth": interval(growth, spread),
        "mass": {
            "sink": interval(sink, spread),
            "prompt": interval(0.3, spread),
            "committed": interval(0.7 - sink - own, spread),
            "self_generated": interval(own, spread),
        },
        "excess": {
            "sink": interval(-excess, spread),
            "current": interval(excess, spread),
            "self_generated": interval(excess, spread),
        },
        "displacement": interval(displacement, spread),
        "entropy": interval(2.1, spread),
        "acceptance": {
            "joint": interval(0.6**number, spread),
            "anchors": 2400,
            "conditional": interval(0.6, spread),
            "conditional_denominator": round(2400 * 0.6 ** (number - 1)),
        },
    }


def summary(steps: list[dict[str, Any]] | None = None, *, carry: str = "pre", **onset: int | str) -> dict[str, Any]:
    """Eight flat steps and no onset, unless said otherwise."""
    flat = {key: "none" for key in ("norm_up", "displaced", "self_up", "sink_down")}
    return {
        "schema_version": 1,
        "checkpoint": {
            "path": "drafters/eagle3.1/model.safetensors",
            "sha256": "ab" * 32,
            "layout": "specforge",
            "switches": {"carry": carry, "fc_norm": True, "rope.theta": 100000.0, "hidden_size": 576},
        },
        "target": {"name": "org/SmolTarget", "fingerprint": "f", "layers": 30, "hidden_size": 576, "sinks": [0]},
        "settings": {"depth": 8},
        "steps": [step(number) for number in range(1, 9)] if steps is None else steps,
        "text_fed_steps": [],
        "acceptance_length": {
            "anchor_mean": interval(1.31),
            "served": interval(1.43),
            "served_sd": 1.6,
            "served_with_bonus": interval(2.43),
            "served_by_request": interval(1.51),
        },
        "onset": flat | onset,
        "provenance": {"skipped_prompts": {"empty": 0, "too_long": 2}},
    }


def drifting(**onset: int | str) -> dict[str, Any]:
    """Steps in which every quantity moves."""
    steps = [
        step(
            number,
            growth=1.2 ** (number - 1),
            sink=0.4 - 0.05 * (number - 1),
            own=0.05 * number,
            excess=0.02 * (number - 1),
            displacement=0.03 * (number - 1),
        )
        for number in range(1, 9)
    ]
    return summary(steps, **onset)


def without(figures: dict[str, Any], *path: str, value: Any = math.nan) -> dict[str, Any]:
    """The summary with a figure of every step set to `value`."""
    for row in figures["steps"]:
        place = row
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = {"mean": value, "low": value, "high": value}
    return figures


def cost_figures(
    actual: float, cost: tuple[float, float | None], *, prompts: int = 48, **paths: tuple[float, ...]
) -> dict[str, Any]:
    """`drift_cost` of a summary from means and half widths: a path is (shapley, half width) or (shapley, half width, alone,
    last)."""

    def path(shapley: float, width: float, alone: float | None = None, last: float | None = None) -> dict[str, Any]:
        ends = {"alone": shapley if alone is None else alone, "last": shapley if last is None else last}
        return {"shapley": interval(shapley, width), **{name: interval(value, width) for name, value in ends.items()}}

    return {
        "actual": interval(actual, 0.05),
        "undrifted": interval(actual + cost[0], 0.05),
        "cost": interval(*cost),
        "share": interval(cost[0] / (actual + cost[0]), 0.02),
        "anchors": 768,
        "prompts": prompts,
        **{name: path(*figures) for name, figures in paths.items()},
    }
