"""Where on which traffic: acceptance, cost of drift and reasons of rejection by category, language, token type and place.

Categories and languages are of prompts: lengths are those of their chains. Token types and places are of tokens: `accepted` is the
share of a kind's tokens that are drafted right where all before them were, `cost` what drafting them without drift would add to
that share, both over the same chains; reasons are those of the chains that end at such a token.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from driftscope import stats
from driftscope.chain.patches import REASONS
from driftscope.figures.cost import COLUMNS, PROBE, cost_figures
from driftscope.figures.grids import put
from driftscope.figures.rejections import rejection_figures
from driftscope.figures.traffic_tokens import token_rows
from driftscope.runs.prompt_sums import chains
from driftscope.runs.summary import clean_rows

if TYPE_CHECKING:
    from driftscope.runs.folder import RunFolder

Rows = list[dict[str, Any]]


def traffic_figures(run: RunFolder, depth: int | None = None, *, resamples: int = stats.RESAMPLES) -> Rows:
    """One row per group: `by` (category, language, token or place), `group`, counts, what was measured. [] without acceptance.

    By prompts: `prompts`, `anchors`, `anchor_mean` and `served` at `depth`, `cost`, its `share` of the undrifted length, `reasons`.
    By tokens: `tokens` (of living chains), `accepted`, `cost`, `reasons`. Reasons are shares of the `rejected`.
    """
    rows = clean_rows(run, "drafted", ("accepted", "match"))
    rows = rows[rows["accepted"].notna()]
    if depth is not None:
        rows = rows[rows["step"] <= depth]
    if rows.empty:
        return []
    deepest = int(rows["step"].max())
    found: Rows = []
    for by in ("category", "language"):
        groups = {prompt.id: getattr(prompt, by, None) for prompt in run.info.prompts}
        if any(groups.values()):
            found += _by_prompts(run, by, groups, rows, deepest, resamples)
    return found + token_rows(run, rows, deepest, resamples)


def _by_prompts(
    run: RunFolder, by: str, groups: Mapping[str, str | None], rows: Any, depth: int, resamples: int
) -> Rows:
    all_chains = chains(rows)
    size = len(all_chains.prompts)
    parts = list(all_chains.by_prompt())
    kept = [all_chains.length[part][~all_chains.loop[part]] for part in parts]
    total, count = (np.array([float(value) for value in values]) for values in (map(np.sum, kept), map(len, kept)))
    walks = [stats.served_walk(all_chains.length[part], depth) for part in parts] if all_chains.consecutive else []
    costs, ends = _cost_by(run, groups, depth, resamples)
    found: Rows = []
    for group in sorted({name for name in groups.values() if name}):
        own = np.array([groups.get(name) == group for name in all_chains.prompts]).reshape(size)
        if not own.any():
            continue
        entry: dict[str, Any] = {"by": by, "group": group, "prompts": int(own.sum()), "anchors": int(count[own].sum())}
        put(entry, "anchor_mean", stats.ratio_of_sums(total[own], count[own], resamples=resamples))
        if walks:
            served = [(float(walk.total), float(walk.rounds)) for walk, here in zip(walks, own, strict=True) if here]
            put(entry, "served", stats.ratio_of_sums(*np.array(served).T, resamples=resamples))
        cost = costs.get(group, {})
        entry |= {name: cost[name] for name in ("cost", "share") if name in cost}
        found.append(entry | _reasons(ends.get(group)))
    return found


def _cost_by(
    run: RunFolder, groups: Mapping[str, str | None], depth: int, resamples: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    if PROBE not in run.probes:
        return {}, {}
    cost = cost_figures(run.table("anchors", PROBE, columns=COLUMNS), groups, depth, resamples=resamples)
    if not cost:
        return {}, {}
    ends = rejection_figures(run.table("rejections", PROBE), cost["depth"], groups, resamples=resamples)
    return cost.get("by_category", {}), ends.get("by_category", {})


def _reasons(shares: Mapping[str, Any] | None) -> dict[str, Any]:
    if not shares or not shares.get("rejected"):
        return {}
    return {"reasons": {name: shares[name] for name in REASONS if name in shares}, "rejected": shares["rejected"]}


def traffic_figure_rows(figures: Mapping[str, Any]) -> Rows:
    """Tidy rows: axes `by`, `group`, `quantity` (served, anchor_mean, accepted, cost, share, and `reason: NAME`)."""
    rows: Rows = []
    for entry in figures.get("groups", ()):
        axes = {"by": entry["by"], "group": entry["group"]}
        counted = "anchors" if "anchors" in entry else "tokens"
        for quantity in ("served", "anchor_mean", "accepted", "cost", "share"):
            if quantity in entry:
                rows.append(
                    {**axes, "quantity": quantity, **entry[quantity], "count": entry[counted], "counted": counted}
                )
        for reason, share in entry.get("reasons", {}).items():
            told = {"quantity": f"reason: {reason}", **share, "count": entry["rejected"], "counted": "rejected"}
            rows.append({**axes, **told})
    return rows
