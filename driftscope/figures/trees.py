"""What trees of drafted tokens serve, and what they gain over the chain with as many: figures of the probe `trees`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from numpy.typing import NDArray

from driftscope import stats
from driftscope.errors import RunError
from driftscope.figures.grids import put
from driftscope.runs.parameters import TREE, parameters_of
from driftscope.runs.prompt_sums import chain_order, check_filled, prompt_codes
from driftscope.stats.contrasts import contrasts, ratio
from driftscope.stats.intervals import Floats

if TYPE_CHECKING:
    from driftscope.runs.folder import RunFolder

PROBE = "trees"
PREFIX = "tree/"
CHAIN = "tree/chain"
BUDGETS = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 48, 64)
"""Nodes without the root."""


@dataclass(frozen=True)
class TreeChains:
    """With how many nodes the token of every step is accepted, anchor by anchor."""

    prompts: list[str]
    prompt: Int[NDArray[np.int64], " anchor"]
    loop: NDArray[np.bool_]
    nodes: Float[NDArray[np.float64], "anchor step"]
    """Infinite where no number is enough."""
    consecutive: bool

    def accepted(self, nodes: int) -> Int[NDArray[np.int64], " anchor"]:
        """Accepted tokens with so many nodes."""
        return np.logical_and.accumulate(self.nodes <= nodes, 1).sum(1).astype(np.int64)

    def anchor_mean(self, nodes: int) -> tuple[Floats, Floats]:
        """[prompt] accepted tokens and anchors, loops left out."""
        kept = ~self.loop
        count = self.accepted(nodes)[kept].astype(np.float64)
        size = len(self.prompts)
        total, anchors = (np.bincount(self.prompt[kept], weights, minlength=size) for weights in (count, None))
        return total.astype(np.float64), anchors.astype(np.float64)

    def served(self, nodes: int) -> tuple[Floats, Floats]:
        """[prompt] accepted tokens and rounds of the walk t <- t + accepted(t) + 1, loops kept."""
        count, steps = self.accepted(nodes), self.nodes.shape[1]
        walks = [stats.served_walk(count[self.prompt == n], steps) for n in range(len(self.prompts))]
        return np.array([float(walk.total) for walk in walks]), np.array([float(walk.rounds) for walk in walks])


def tree_chains(rows: pd.DataFrame) -> TreeChains:
    """From the `trees` rows of one variant. RunError for rows that are not of every anchor and step."""
    prompt, names = prompt_codes(rows["prompt"])
    anchor, step = (rows[name].to_numpy(np.int64) for name in ("anchor", "step"))
    steps = int(step.max())
    check_filled(len(names) * steps, len(rows))
    order, first = chain_order(prompt, anchor, step)
    count = int(first.sum())
    if count * steps != len(rows) or not (step[order].reshape(count, steps) == np.arange(1, steps + 1)).all():
        raise RunError(
            "the rows of probe trees are not one for every anchor and step: changed or damaged; measure again"
        )
    start = order[first]
    follows = np.diff(anchor[start])[np.diff(prompt[start]) == 0]
    nodes = rows["nodes"].to_numpy(np.float64, na_value=np.inf)[order].reshape(count, steps)
    return TreeChains(names, prompt[start], rows["loop"].to_numpy(bool)[start], nodes, bool((follows == 1).all()))


def run_trees(run: RunFolder, *, resamples: int = stats.RESAMPLES) -> dict[str, Any]:
    """`tree_figures` of a run; {} where it holds none."""
    if PROBE not in run.probes:
        return {}
    return tree_figures(run.table("trees", PROBE), run.table("variants", PROBE), resamples=resamples)


def tree_figures(rows: pd.DataFrame, variants: pd.DataFrame, *, resamples: int = stats.RESAMPLES) -> dict[str, Any]:
    """`chain` and `trees`, each with lengths in accepted tokens without the bonus token; {} without rows.

    Of a tree its shape (`steps`, `topk`, `nodes`, `static`) and, with all its nodes and for every smaller budget in `budgets`:
    `anchor_mean` over anchors outside loops, `served` along the walk, `chain`, the served length of the chain with as many tokens
    (no more than were measured: `chain_tokens`), and `gain`, the paired difference of the two. The chain takes a pass of the
    drafter for every token, the tree one for every step: the gain is at the same verification, not at the same drafting.
    """
    if rows.empty:
        return {}
    parameters = parameters_of(variants[variants["variant"] != CHAIN], TREE)
    by_name = {str(name): tree_chains(part) for name, part in rows.groupby("variant", observed=True)}
    chain = by_name.get(CHAIN)
    found: dict[str, Any] = {"anchors": 0, "chain": [], "trees": []}
    if chain is not None:
        found["anchors"] = int((~chain.loop).sum())
        found["chain"] = [_lengths(chain, nodes, resamples) for nodes in range(1, chain.nodes.shape[1] + 1)]
    for name, tree in by_name.items():
        if name == CHAIN:
            continue
        shape = parameters[name]
        most = int(shape["nodes"])
        entry = {"name": name.removeprefix(PREFIX), **{key: shape[key] for key in ("steps", "topk", "static")}}
        entry |= _beside(tree, chain, most, resamples)
        entry["budgets"] = [_beside(tree, chain, nodes, resamples) for nodes in BUDGETS if nodes < most]
        found["trees"].append(entry)
    return found


def _lengths(tree: TreeChains, nodes: int, resamples: int) -> dict[str, Any]:
    entry: dict[str, Any] = {"nodes": nodes}
    put(entry, "anchor_mean", stats.ratio_of_sums(*tree.anchor_mean(nodes), resamples=resamples))
    if tree.consecutive:
        put(entry, "served", stats.ratio_of_sums(*tree.served(nodes), resamples=resamples))
    return entry


def _beside(tree: TreeChains, chain: TreeChains | None, nodes: int, resamples: int) -> dict[str, Any]:
    """A tree of so many nodes, and the chain of as many tokens."""
    entry = _lengths(tree, nodes, resamples)
    if (
        chain is None
        or not (tree.consecutive and chain.consecutive)
        or tree.prompts != chain.prompts
        or "served" not in entry
    ):
        return entry
    tokens = min(nodes, chain.nodes.shape[1])
    walks = [tree.served(nodes), chain.served(tokens)]
    if min(rounds.sum() for _, rounds in walks) >= stats.MIN_DENOMINATOR:
        figures = contrasts(walks, [[0, 1], [1, -1]], ratio, resamples=resamples)
        put(entry, "chain", figures, 0)
        put(entry, "gain", figures, 1)
        entry["chain_tokens"] = tokens
    return entry


def tree_figure_rows(figures: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Tidy rows: axes `tree`, `nodes`, `quantity` (served, chain, gain, anchor_mean); `whole` where all nodes of the tree are
    held."""
    rows = []
    for tree in figures.get("trees", ()):
        for entry in (*tree["budgets"], tree):
            for quantity in ("served", "chain", "gain", "anchor_mean"):
                if quantity in entry:
                    axes = {"tree": tree["name"], "nodes": entry["nodes"], "quantity": quantity, "whole": entry is tree}
                    rows.append({**axes, **entry[quantity]})
    return rows


def tree_sentences(figures: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Of each tree, what it gains over the chain of as many tokens."""
    found = []
    for tree in figures.get("trees", ()):
        gain = tree.get("gain")
        if gain is None:
            continue
        sure = gain["low"] is not None and gain["low"] * gain["high"] > 0
        ends = "" if gain["low"] is None else f" ({gain['low']:+.2f} to {gain['high']:+.2f})"
        tokens = tree["chain_tokens"]
        beside = f"a chain of {tokens} tokens" + ("" if tokens == tree["nodes"] else ", the longest measured")
        told = f"tree {tree['name']}: {gain['mean']:+.2f} accepted tokens a round{ends} against {beside}"
        found.append(("", told if sure or gain["low"] is None else f"{told}: not told apart"))
    return found
