"""Speed-up of the trees that a run measured, at every batch size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from driftscope.errors import DriftscopeError
from driftscope.planning.costs import CostModel

Figure = Mapping[str, Any]


def tree_plans(figures: Figure, costs: CostModel | None) -> list[dict[str, Any]]:
    """From `driftscope.figures.trees.tree_figures`: of every tree its shape, `served` length, that of the `chain` with as many
    tokens and the `gain`; and per batch size the `speed_up`, with intervals of the served length. A batch whose costs lack the
    tree's passes is left out, with the reason in `lacking`."""
    found = []
    for tree in figures.get("trees", ()):
        names = ("name", "steps", "topk", "nodes", "static", "anchor_mean", "served", "chain", "chain_tokens", "gain")
        entry: dict[str, Any] = {name: tree[name] for name in names if name in tree}
        entry["batches"], lacking = [], None
        for cost in costs.batches if costs is not None and "served" in tree else ():
            try:
                seconds = (
                    costs.tree_round(cost, tree["nodes"], tree["steps"], tree["topk"]) if costs is not None else 0.0
                )
            except DriftscopeError as error:
                lacking = lacking or str(error)
                continue
            factor = cost.plain / seconds
            speed_up = {end: None if value is None else (value + 1) * factor for end, value in tree["served"].items()}
            entry["batches"].append({"batch": cost.batch, "round": seconds, "speed_up": speed_up})
        if lacking:
            entry["lacking"] = lacking
        found.append(entry)
    return found


def best_tree(trees: list[dict[str, Any]], batch: int, above: float) -> dict[str, Any] | None:
    """The dynamic tree with the largest speed-up at a batch size, if that is larger than `above`: what SGLang could build."""
    speeds = [
        (part["speed_up"]["mean"], tree)
        for tree in trees
        if not tree["static"]
        for part in tree["batches"]
        if part["batch"] == batch
    ]
    top = max(speeds, key=lambda pair: pair[0], default=None)
    return top[1] if top is not None and top[0] > above else None
