"""Noise: length kept in shares of the undisturbed one, and how far distributions and carries move."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from driftscope import stats
from driftscope.figures.grids import Grids, prompts_and_depth, put, variant
from driftscope.runs.parameters import NOISE, parameters_of
from driftscope.runs.prompt_sums import divided

CLEAN = "noise/clean"
LENGTHS = ("served", "anchor_mean")
KEPT = {"served_kept": ("rounds", "served rounds"), "anchor_mean_kept": ("anchors", "anchors")}
"""Share of the clean length that is left -> where its denominator stands, and what it counts."""
SITES = {
    "state": "noise on the carried state",
    "carry": "noise on the carried state, from step 2",
    "embed": "noise on the embedding",
}
_SAID = {
    "beyond the range": "less than half of the length is lost at every alpha that was tried",
    "below the range": "more than half of the length is lost at every alpha that was tried",
}
_MOVED = {"kl": "sum/kl", "flips": "sum/flip", "cos_carry": "sum/cos_clean"}


def noise_figures(steps: pd.DataFrame, variants: pd.DataFrame, *, resamples: int = stats.RESAMPLES) -> dict[str, Any]:
    """From the `steps` and `variants` rows of the probe; {} without any.

    `clean`: both acceptance lengths of the same anchors, undisturbed and without bonus tokens, with their denominators.
    `sites`, by name: `levels`, one per alpha with seeds pooled: `served_kept` and `anchor_mean_kept` (1 = nothing lost) with
    `rounds` and `anchors`, their spread over seeds, and from text-fed chains `kl` (nats), `flips` (share of top tokens) and
    `cos_carry`, as means over steps and for each step in `steps`; `half_at`, the alpha at which half of a length is lost.
    """
    about = parameters_of(variants, NOISE, kind="intervention")
    clean = variant(steps, CLEAN)
    if clean.empty:
        return {}
    prompts, depth = prompts_and_depth(clean)
    grids = Grids(steps, prompts, depth)
    reference = grids.lengths(CLEAN)
    result: dict[str, Any] = {"clean": {}, "depth": depth, "sites": {}}
    for name in LENGTHS:
        accepted, units = reference[name]
        put(result["clean"], name, stats.ratio_of_sums(accepted, units, resamples=resamples))
    result["clean"] |= {"rounds": _total(reference["served"][1]), "anchors": _total(reference["anchor_mean"][1])}
    conditions: dict[str, dict[float, list[str]]] = {}
    for name, told in about.items():
        site = told["site"] if told["steps"] == "every" else f"{told['site']}, first step only"
        conditions.setdefault(site, {}).setdefault(float(told["alpha"]), []).append(name)
    for site, alphas in conditions.items():
        levels = []
        for alpha, names in sorted(alphas.items()):
            level: dict[str, Any] = {"alpha": alpha, "seeds": len(names)}
            level |= _kept(grids, names, reference, resamples)
            level |= _moved(grids, names, resamples)
            levels.append(level)
        result["sites"][site] = {"levels": levels, "half_at": _half(levels)}
    return result


def _kept(grids: Grids, names: list[str], reference: dict[str, tuple[Any, Any]], resamples: int) -> dict[str, Any]:
    by_seed = [grids.lengths(name) for name in names]
    found: dict[str, Any] = {}
    for name, unit in (("served", "rounds"), ("anchor_mean", "anchors")):
        accepted, units = (sum(seed[name][place] for seed in by_seed) for place in (0, 1))
        put(found, f"{name}_kept", stats.relative_ratio(accepted, units, *reference[name], resamples=resamples))
        found[unit] = _total(units)
        base = np.nansum(reference[name][0]) / max(np.nansum(reference[name][1]), 1)
        shares = [np.nansum(seed[name][0]) / max(np.nansum(seed[name][1]), 1) / base for seed in by_seed if base > 0]
        if len(shares) > 1:
            found[f"{name}_kept_sd_over_seeds"] = float(np.std(shares, ddof=1))
    return found


def _moved(grids: Grids, names: list[str], resamples: int) -> dict[str, Any]:
    depth = grids.shape[1]
    keys = [(name, "text") for name in names]
    means = {name: grids.mean(column, *keys) for name, column in _MOVED.items()}
    means = {name: values for name, values in means.items() if np.isfinite(values).any()}
    found: dict[str, Any] = {}
    per_step: list[dict[str, Any]] = [{"step": step} for step in range(1, depth + 1)]
    for name, values in means.items():
        overall = divided(values.sum(1), np.full(len(values), float(depth)))
        put(found, name, stats.bca(overall, resamples=resamples))
        figures = stats.bca(values, resamples=resamples)
        for place, step in enumerate(per_step):
            put(step, name, figures, place)
    if means:
        found["steps"] = per_step
    return found


def _half(levels: list[dict[str, Any]]) -> dict[str, float | str]:
    positive = [level for level in levels if level["alpha"] > 0]
    alphas = [level["alpha"] for level in positive]
    found: dict[str, float | str] = {}
    for name in LENGTHS:
        kept = [level.get(f"{name}_kept", {}).get("mean", np.nan) for level in positive]
        point = stats.half_point(alphas, kept)
        if point is not None:
            found[name] = point
    return found


def _total(values: Any) -> int:
    return int(np.nansum(values))


def noise_rows(figures: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Per `site` and `alpha` (in units of the row's RMS): `quantity` served_kept, anchor_mean_kept (1 = nothing lost), kl
    (nats), flips (0 to 1), cos_carry; the last three also per `step`, which is 0 for the whole chain."""
    for site, told in figures.get("sites", {}).items():
        for level in told["levels"]:
            axes = {"site": site, "alpha": level["alpha"], "step": 0}
            for name in (*KEPT, *_MOVED):
                if name in level:
                    unit, counted = KEPT.get(name, ("anchors", "anchors"))
                    count = {"count": level[unit], "counted": counted} if unit in level else {}
                    yield {**axes, "quantity": name, **level[name], **count}
            for step in level.get("steps", ()):
                for name in _MOVED:
                    if name in step:
                        yield {**axes, "step": step["step"], "quantity": name, **step[name]}


def noise_sentences(figures: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(site, where half of the accepted length is lost, or on which side of the levels that were tried)."""
    said = []
    for site, told in figures.get("sites", {}).items():
        point = told.get("half_at", {}).get("anchor_mean")
        if point is not None:
            text = _SAID.get(point) if isinstance(point, str) else f"half of the length is lost at alpha {point:.2g}"
            said.append((SITES.get(site, site), text or str(point)))
    return said
