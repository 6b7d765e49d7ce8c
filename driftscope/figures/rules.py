"""What every rule of verification accepts: figures of the probe `rules`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from driftscope import stats
from driftscope.chain.verification_rules import RULES
from driftscope.figures.grids import put
from driftscope.runs.parameters import RULES as FORM
from driftscope.runs.parameters import parameters_of
from driftscope.runs.prompt_sums import PromptCells
from driftscope.stats.contrasts import contrasts, ratio

if TYPE_CHECKING:
    from driftscope.runs.folder import RunFolder

PROBE = "rules"
PLAIN = "t1"
"""Temperature 1 and nothing else."""


def run_rules(run: RunFolder, *, resamples: int = stats.RESAMPLES) -> dict[str, Any]:
    """`rule_figures` of a run; {} where it holds none."""
    if PROBE not in run.probes:
        return {}
    return rule_figures(run.table("rules", PROBE), run.table("variants", PROBE), resamples=resamples)


def rule_figures(rows: pd.DataFrame, variants: pd.DataFrame, *, resamples: int = stats.RESAMPLES) -> dict[str, Any]:
    """`samplings`: for every pair of samplings (`target`, `draft`) and rule: `steps`, the `acceptance` of each step given the
    text so far, on the `greedy` text and on texts that the target `sampled` so; `length`, expected accepted tokens without the
    bonus token, from the sampled texts, or of the greedy rule from the greedy ones. `draft_temperature`: of the drafts that
    differ in temperature alone, the lossless acceptance over all steps on greedy texts, the `best` of them and its paired `gain`.
    """
    if rows.empty:
        return {}
    parameters = parameters_of(variants, FORM)
    found: list[dict[str, Any]] = []
    for name, part in rows.groupby("variant", observed=True):
        told = parameters[str(name)]
        entry: dict[str, Any] = {"target": told["target"], "draft": told["draft"], "rules": {}}
        for rule in RULES:
            own = part[part["rule"] == rule]
            if len(own):
                entry["rules"][rule] = _rule(own, resamples)
        found.append(entry)
    result: dict[str, Any] = {"samplings": found}
    temperature = _draft_temperature(rows, parameters, resamples)
    if temperature:
        result["draft_temperature"] = temperature
    return result


def _rule(rows: pd.DataFrame, resamples: int) -> dict[str, Any]:
    entry: dict[str, Any] = {}
    for text in ("greedy", "sampled"):
        own = rows[rows["text"] == text]
        if own.empty:
            continue
        cells = PromptCells(own)
        anchors = cells.sum(own["anchors"])
        acceptance = stats.ratio_of_sums(cells.sum(own["acceptance"]), anchors, resamples=resamples)
        steps: list[dict[str, Any]] = [{"step": step} for step in cells.steps]
        for place, step in enumerate(steps):
            put(step, "acceptance", acceptance, place)
        entry[text] = steps
        if own["joint"].notna().all():
            # The chance that the first k are accepted, summed over k.
            joint = cells.sum(own["joint"])
            put(entry, "length", stats.ratio_of_sums(joint.sum(1), anchors[:, 0], resamples=resamples))
    return entry


def _draft_temperature(rows: pd.DataFrame, parameters: dict[str, dict[str, Any]], resamples: int) -> dict[str, Any]:
    """Of the pairs whose target samples at temperature 1."""
    kept = rows[(rows["rule"] == "lossless") & (rows["text"] == "greedy")]
    sums: dict[float, tuple[Any, Any]] = {}
    for name, part in kept.groupby("variant", observed=True):
        told = parameters[str(name)]
        if told["target"] != PLAIN or "," in told["draft"]:
            continue
        cells = PromptCells(part)
        total, anchors = (cells.sum(part[column]).sum(1) for column in ("acceptance", "anchors"))
        sums[float(told["draft"][1:])] = total, anchors
    if 1.0 not in sums or len(sums) < 2:
        return {}
    ordered = sorted(sums)
    figures = contrasts([sums[value] for value in ordered], np.eye(len(ordered)), ratio, resamples=resamples)
    tried: list[dict[str, Any]] = [{"temperature": value} for value in ordered]
    for place, entry in enumerate(tried):
        put(entry, "acceptance", figures, place)
    measured = [place for place, entry in enumerate(tried) if "acceptance" in entry]
    if not measured:
        return {}
    best = max(measured, key=lambda place: tried[place]["acceptance"]["mean"])
    result: dict[str, Any] = {"tried": tried, "best": ordered[best]}
    if ordered[best] != 1.0:
        put(result, "gain", contrasts([sums[ordered[best]], sums[1.0]], [[1, -1]], ratio, resamples=resamples), 0)
    return result


def rule_figure_rows(figures: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Tidy rows: axes `sampling` (TARGET/DRAFT), `rule`, `step` (none of a length), `quantity` (`acceptance` on greedy texts,
    `acceptance, sampled`, `length`)."""
    rows: list[dict[str, Any]] = []
    for entry in figures.get("samplings", ()):
        name = f"{entry['target']}/{entry['draft']}"
        for rule, held in entry["rules"].items():
            if "length" in held:
                rows.append({"sampling": name, "rule": rule, "step": None, "quantity": "length", **held["length"]})
            for text, quantity in (("greedy", "acceptance"), ("sampled", "acceptance, sampled")):
                for step in held.get(text, ()):
                    if "acceptance" in step:
                        axes = {"sampling": name, "rule": rule, "step": step["step"], "quantity": quantity}
                        rows.append({**axes, **step["acceptance"]})
    return rows


def rule_sentences(figures: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What the scale of the drafter's logits costs."""
    found = figures.get("draft_temperature")
    return [("", draft_temperature(found))] if found else []


def draft_temperature(found: Mapping[str, Any]) -> str:
    """From the figures `draft_temperature`, in a sentence."""
    best = found["best"]
    if best == 1.0 or "gain" not in found:
        return "Draft temperature: none of those tried is accepted more often than 1."
    gain = found["gain"]
    ends = "" if gain["low"] is None else f" ({gain['low']:+.3f} to {gain['high']:+.3f})"
    return (
        f"Draft temperature {best:g} is accepted more often than 1 by {gain['mean']:+.3f} a step{ends} under lossless sampling: the"
        " scale of the drafter's logits, not drift; no greedy figure changes."
    )
