"""Frames of the probes beyond the clean chains, from their figures in `driftscope.figures`. Runs without a probe have no
rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from driftscope.show.frames.base import Runs, recorded
from driftscope.show.frames.measured import measured

KEPT = {"served_kept": ("rounds", "served rounds"), "anchor_mean_kept": ("anchors", "anchors")}
"""Share of the clean length that is left -> where its denominator stands, and what it counts."""
MOVED = ("kl", "flips", "cos_carry")


def noise(runs: Runs) -> pd.DataFrame:
    """Per `site` and `alpha` (in units of the row's RMS): `quantity` served_kept, anchor_mean_kept (1 = nothing lost), kl
    (nats), flips (0 to 1), cos_carry; the last three also per `step`, which is 0 for the whole chain."""
    records: list[dict[str, Any]] = []
    for label, figures in measured(runs, "noise"):
        for site, told in figures.get("sites", {}).items():
            for level in told["levels"]:
                axes = {"run": label, "site": site, "alpha": level["alpha"], "step": 0}
                for name in (*KEPT, *MOVED):
                    if name in level:
                        unit = KEPT.get(name, ("anchors", "anchors"))
                        count = {"count": level[unit[0]], "counted": unit[1]} if unit[0] in level else {}
                        records.append({**axes, "quantity": name, **level[name], **count})
                for step in level.get("steps", ()):
                    for name in MOVED:
                        if name in step:
                            records.append({**axes, "step": step["step"], "quantity": name, **step[name]})
    return recorded(records, ("run", "site", "alpha", "step", "quantity"), runs)


def half_points(runs: Runs) -> pd.DataFrame:
    """The alpha `at` which half of a length is lost, by `site` and `quantity` (as in `noise`); NaN and `said` in words where
    it lies outside of what was tried."""
    records = []
    for label, figures in measured(runs, "noise"):
        for site, told in figures.get("sites", {}).items():
            for name, point in told.get("half_at", {}).items():
                number = isinstance(point, float | int)
                records.append(
                    {
                        "run": label,
                        "site": site,
                        "quantity": f"{name}_kept",
                        "at": float(point) if number else float("nan"),
                        "said": f"{point:.2g}" if number else str(point),
                    }
                )
    return pd.DataFrame(records, columns=["run", "site", "quantity", "at", "said"])


def pin(runs: Runs) -> pd.DataFrame:
    """Per `condition` (free, then each pin) and `step`: `quantity` excess (self-generated) and state_rms; and with `step` 0
    slope (of the excess per step), share_from_magnitude and length_kept (anchor mean, 1 = nothing lost)."""
    records: list[dict[str, Any]] = []
    for label, figures in measured(runs, "pin"):
        for condition, told in {"free": figures["free"], **figures["pins"]}.items():
            axes = {"run": label, "condition": condition}
            for name in ("excess", "state_rms"):
                records += [{**axes, "quantity": name, **entry} for entry in told.get(name, ())]
            for name in ("slope", "share_from_magnitude"):
                if name in told:
                    records.append({**axes, "step": 0, "quantity": name, **told[name]})
            kept = told.get("length_kept", {}).get("anchor_mean")
            if kept is not None:
                records.append({**axes, "step": 0, "quantity": "length_kept", **kept})
    return recorded(records, ("run", "condition", "step", "quantity"), runs)


def pin_sentences(runs: Runs) -> list[tuple[str, str, str]]:
    """(run, pin, what it says)."""
    return [
        (label, condition, told["sentence"])
        for label, figures in measured(runs, "pin")
        for condition, told in figures.get("pins", {}).items()
    ]


def depth(runs: Runs) -> pd.DataFrame:
    """Per `feed` and step to the horizon: `quantity` conditional (drafted), agreement (text), rank (geometric mean), growth,
    matched_growth, displacement, mass and excess by `bucket`."""
    records: list[dict[str, Any]] = []
    for label, figures in measured(runs, "depth"):
        for feed in ("drafted", "text"):
            for step in figures.get(feed, ()):
                axes = {"run": label, "feed": feed, "step": step["step"]}
                for name, figure in step.items():
                    if name in ("mass", "excess"):
                        parts = [
                            {**axes, "quantity": name, "bucket": bucket, **value} for bucket, value in figure.items()
                        ]
                        records += parts
                    elif isinstance(figure, Mapping):
                        count = {"count": step["reached"], "counted": "chains"} if name == "conditional" else {}
                        records.append({**axes, "quantity": name, "bucket": "", **figure, **count})
    return recorded(records, ("run", "feed", "step", "quantity", "bucket"), runs)


def collapses(runs: Runs) -> pd.DataFrame:
    """The step at which text-fed agreement falls under half of step 1's, where it does: `run`, `key`, `name`, `step`."""
    records = [
        {"run": label, "key": "collapse", "name": "under half of step 1", "step": figures["collapse"]}
        for label, figures in measured(runs, "depth")
        if isinstance(figures.get("collapse"), int)
    ]
    return pd.DataFrame(records, columns=["run", "key", "name", "step"])


def layers(runs: Runs) -> pd.DataFrame:
    """Likeness of the carry to the target's `boundary` at `row` (next t+k, same t+k-1, anchor t), per step: `quantity` cka
    and cos, both 0 to 1 at the most."""
    records = [
        {"run": label, "step": step["step"], "row": row, "quantity": name, **entry}
        for label, figures in measured(runs, "layers")
        for step in figures.get("steps", ())
        for name in ("cka", "cos")
        for row, entries in step.get(name, {}).items()
        for entry in entries
    ]
    return recorded(records, ("run", "step", "row", "boundary", "quantity"), runs)


def layer_sentences(runs: Runs) -> list[tuple[str, str]]:
    """(run, what its steps look like)."""
    return [(label, figures["sentence"]) for label, figures in measured(runs, "layers") if "sentence" in figures]


def template(runs: Runs) -> pd.DataFrame:
    """Per `condition` against the regular template on the same prompts: `quantity` length_kept (anchor mean), growth_kept,
    excess_kept (1 = as under the regular one), excess_change (difference of masses)."""
    records: list[dict[str, Any]] = []
    for label, figures in measured(runs, "template"):
        for condition, told in figures.get("conditions", {}).items():
            axes = {"run": label, "condition": condition}
            count = {"count": told.get("paired", 0), "counted": "prompts with both"}
            kept = told.get("length_kept", {}).get("anchor_mean")
            if kept is not None:
                records.append({**axes, "quantity": "length_kept", **kept, **count})
            for name in ("growth_kept", "excess_kept", "excess_change"):
                if name in told:
                    records.append({**axes, "quantity": name, **told[name], **count})
    return recorded(records, ("run", "condition", "quantity"), runs)


def template_sentences(runs: Runs) -> list[tuple[str, str]]:
    """(run, what a condition leaves of the acceptance)."""
    return [
        (label, told["sentence"])
        for label, figures in measured(runs, "template")
        for told in figures.get("conditions", {}).values()
    ]


def length(runs: Runs) -> pd.DataFrame:
    """Per attention `policy` and `length` of the text in tokens: `quantity` anchor_mean (accepted tokens a chain, without
    bonus tokens), length_kept (against full attention at the shortest length), growth, excess."""
    records: list[dict[str, Any]] = []
    for label, figures in measured(runs, "length"):
        for policy, rows in figures.get("policies", {}).items():
            for row in rows:
                axes = {"run": label, "policy": policy, "length": row["text_length"]}
                count = {"count": row.get("anchors", 0), "counted": "anchors"}
                found = {
                    "anchor_mean": row.get("length", {}).get("anchor_mean"),
                    "length_kept": row.get("length_kept", {}).get("anchor_mean"),
                    "growth": row.get("growth"),
                    "excess": row.get("excess"),
                }
                records += [{**axes, "quantity": name, **value, **count} for name, value in found.items() if value]
    return recorded(records, ("run", "policy", "length", "quantity"), runs)


def length_sentences(runs: Runs) -> list[tuple[str, str]]:
    """(run, where acceptance breaks and what rescues it)."""
    return [(label, figures["sentence"]) for label, figures in measured(runs, "length") if "sentence" in figures]
