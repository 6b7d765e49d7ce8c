"""Pin: the share of the drift onto self-generated tokens that the magnitude of the carried state causes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from driftscope import stats
from driftscope.figures.grids import Grids, over_prompts, prompts_and_depth, put, variant
from driftscope.stats.shares import removed_share

FREE = "pin/free"
CONDITIONS = {
    "free": "free",
    "fused": "state at the RMS of its fused input",
    "step1": "state at the RMS of step 1's carry",
    "keys": "keys at the RMS of the prompt's keys",
}
"""Condition -> what a reader calls it."""
UNCHANGED = 0.02
"""A pin that moves the RMS of the state by less, as a share, has nothing to do."""
CAVEAT = "a pin at inference is a diagnostic, not a fix: the drafter was not trained under it"


def pin_figures(steps: pd.DataFrame, heads: pd.DataFrame, *, resamples: int = stats.RESAMPLES) -> dict[str, Any]:
    """From the `steps` and `heads` rows of the probe; {} without any.

    `free` and each of `pins`, by name: `excess` (self-generated, per step, from step 2), its `slope` per step and `state_rms`
    per step. Each pin also has `share_from_magnitude` = 1 - slope(pinned) / slope(free) if the free slope's interval lies
    above 0, `length_kept` for both acceptance lengths, and `sentence`.
    """
    free_rows = variant(steps, FREE)
    if free_rows.empty:
        return {}
    prompts, depth = prompts_and_depth(free_rows)
    grids, by_head = Grids(steps, prompts, depth), Grids(heads, prompts, depth)
    free_slope, free = _slope(by_head, FREE, resamples)
    free["state_rms"] = _per_step(_state(grids, FREE), resamples)
    free |= _length_of(grids, resamples)
    drift = _drift(free)
    result: dict[str, Any] = {"caveat": CAVEAT, "drift": drift, "free": free, "pins": {}}
    for name in sorted(set(steps["variant"].astype(str)) - {FREE}):
        slope, found = _slope(by_head, name, resamples)
        found["state_rms"] = _per_step(_state(grids, name), resamples)
        if drift == "drift":
            put(found, "share_from_magnitude", removed_share(slope, free_slope, resamples=resamples))
        found["length_kept"] = _kept(grids, name, resamples)
        free_end = free["excess"][-1]["mean"] if free["excess"] else np.nan
        found["sentence"] = _sentence(found, drift, free_end, _idle(grids, name))
        result["pins"][name.removeprefix("pin/")] = found
    return result


def _state(grids: Grids, name: str) -> Any:
    return grids.mean("sum/rms/state", (name, "drafted"))


def _slope(by_head: Grids, name: str, resamples: int) -> tuple[Any, dict[str, Any]]:
    """Per prompt, the slope of the self-generated excess over steps 2..D; and its figures. A mean over heads."""
    excess = by_head.mean("excess/self_generated", (name, "drafted"))
    slope = stats.slope(excess)
    found: dict[str, Any] = {"excess": _per_step(excess, resamples)[1:]}
    put(found, "slope", stats.bca(slope, resamples=resamples))
    return slope, found


def _per_step(values: Any, resamples: int) -> list[dict[str, Any]]:
    figures = stats.bca(values, resamples=resamples)
    result = []
    for place in range(values.shape[1]):
        interval = figures.at(place)
        if interval is not None:
            result.append({"step": place + 1, **interval.to_dict()})
    return result


def _drift(free: dict[str, Any]) -> str:
    slope = free.get("slope")
    if slope is None or slope["low"] is None:
        return "not measurable"
    return "drift" if slope["low"] > 0 else "none"


def _length_of(grids: Grids, resamples: int) -> dict[str, Any]:
    found: dict[str, Any] = {"length": {}}
    for name, parts in grids.lengths(FREE).items():
        put(found["length"], name, stats.ratio_of_sums(*parts, resamples=resamples))
    return found


def _kept(grids: Grids, name: str, resamples: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    reference = grids.lengths(FREE)
    for kind, parts in grids.lengths(name).items():
        put(found, kind, stats.relative_ratio(*parts, *reference[kind], resamples=resamples))
    return found


def _idle(grids: Grids, name: str) -> bool:
    """Whether a pin of the state leaves its mean RMS over prompts where it was, at every step."""
    if name == "pin/keys":
        return False
    pinned, own = (over_prompts(_state(grids, part)) for part in (name, FREE))
    return bool((np.abs(pinned / own - 1) < UNCHANGED).all())


def _sentence(found: dict[str, Any], drift: str, free_end: float, idle: bool) -> str:
    if drift == "not measurable":
        return f"not measurable: the slope of the self-generated excess needs {stats.MIN_PROMPTS} prompts and 3 steps"
    if drift == "none":
        return "no drift to explain: the self-generated excess does not rise from step 2 on, as far as can be told"
    share = found.get("share_from_magnitude")
    if share is None:
        return "not measurable"
    sure = share["low"] is not None
    ends = f" (95% {_percent(share['low'])} to {_percent(share['high'])})" if sure else ""
    if abs(share["mean"]) < 0.005 or (sure and share["low"] <= 0 <= share["high"]):
        text = f"no share of the drift can be put down to magnitude: {_percent(share['mean'])}{ends}"
    elif share["mean"] < 0:
        text = (
            f"magnitude does not cause the drift: pinned, the self-generated excess rises {-share['mean']:.0%} faster"
        )
    else:
        text = f"magnitude causes {_percent(share['mean'])} of the rise of the self-generated excess{ends}"
    kept = found["length_kept"].get("anchor_mean")
    if kept is not None:
        text += f"; the pin keeps {kept['mean']:.0%} of the accepted length"
    if free_end < stats.PRACTICAL_MASS:
        text += f"; the drift is small, an excess of {free_end:.3f} at the last step"
    if idle:
        text += "; it changes the state's RMS by less than 2%: the carry keeps its size by itself"
    return text


def _percent(share: float) -> str:
    text = f"{share:.0%}"
    return "0%" if text == "-0%" else text


def pin_rows(figures: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Per `condition` (free, then each pin) and `step`: `quantity` excess (self-generated) and state_rms; and with `step` 0
    slope (of the excess per step), share_from_magnitude and length_kept (anchor mean, 1 = nothing lost)."""
    if not figures:
        return
    for condition, told in {"free": figures["free"], **figures["pins"]}.items():
        for name in ("excess", "state_rms"):
            yield from ({"condition": condition, "quantity": name, **entry} for entry in told.get(name, ()))
        axes = {"condition": condition, "step": 0}
        for name in ("slope", "share_from_magnitude"):
            if name in told:
                yield {**axes, "quantity": name, **told[name]}
        kept = told.get("length_kept", {}).get("anchor_mean")
        if kept is not None:
            yield {**axes, "quantity": "length_kept", **kept}


def pin_sentences(figures: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(pin, what it says)."""
    return [(CONDITIONS.get(name, name), told["sentence"]) for name, told in figures.get("pins", {}).items()]
