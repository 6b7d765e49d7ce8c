"""What a report says of each run, and of several together, before the pictures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from driftscope.compare import Comparison, compare
from driftscope.compare.captures import CompareError
from driftscope.findings import Assessment, Evidence, assess
from driftscope.findings.causes import causes_of
from driftscope.findings.thresholds import Thresholds
from driftscope.findings.verdict import Verdict, bounds, figure, verdict
from driftscope.runs.naming import short_name
from driftscope.runs.run import Run
from driftscope.runs.summary import counts
from driftscope.show.charts import compare as compare_charts
from driftscope.show.charts.base import Chart
from driftscope.show.frames import Runs, labelled
from driftscope.show.gallery import Picture
from driftscope.show.tables import interval_text
from driftscope.show.terminal import logged

_LENGTHS = {
    "served": ("served", "drafted tokens accepted per round, along the walk that an engine takes"),
    "served_with_bonus": ("with bonus token", "the same and the target's own token: "),
    "served_by_request": (
        "by request",
        "mean of each prompt's own served length, as papers report; engines pool rounds",
    ),
    "anchor_mean": ("anchor mean", "over every position outside loops: compares drafters, not an engine's figure"),
}
_SWITCHES = ("carry", "fc_norm", "layer_form", "aux_boundaries", "num_layers", "sliding_window", "draft_vocab_size")


@dataclass(frozen=True)
class RunPart:
    """One run: verdict, findings, lengths, facts."""

    label: str
    verdict: Verdict
    assessment: Assessment
    lengths: list[tuple[str, str, str]]
    """Name, figure, meaning."""
    facts: list[tuple[str, str]]
    notes: list[str] = field(default_factory=list)


def run_parts(runs: Runs, depth: int | None, thresholds: Thresholds | Path | None) -> list[RunPart]:
    """The first part of the report."""
    return [_part(label, run, depth, thresholds) for label, run in labelled(runs).items()]


def comparison_of(runs: Runs, depth: int | None, thresholds: Thresholds | Path | None) -> tuple[Comparison | None, str]:
    """The comparison of several runs, or why there is none; (None, "") for a single run."""
    if len(runs) < 2:
        return None, ""
    try:
        return compare(runs, depth=depth, thresholds=thresholds), ""
    except CompareError as error:
        return None, f"These runs cannot be compared: {error}"


def comparison_pictures(found: Comparison) -> list[Picture]:
    """Figures side by side, differences to the first run, effects of a 2 x 2."""
    pictures = [
        _compared(
            "compare-values",
            "Figures of every run",
            "Each on its own axis, with 95% intervals over prompts.",
            found.values_frame().assign(prompts=found.prompts),
            compare_charts.values,
            "run",
        )
    ]
    effects, differences = (
        frame.assign(prompts=found.prompts) for frame in (found.effects_frame(), found.differences_frame())
    )
    if len(effects):
        effects = effects[effects["given"] == ""]
        about = "Averaged over the other switch; filled where the interval leaves out no effect. A factor's null is 1."
        named = effects.assign(effect=effects["effect"].map(compare_charts.EFFECTS))
        pictures.append(
            Picture(
                "compare-effects",
                "compare",
                "Effects of the two switches",
                about,
                compare_charts.effects(effects),
                _wide(named, "effect"),
            )
        )
    elif len(differences):
        pictures.append(
            _compared(
                "compare-differences",
                f"Differences to {found.runs[0]}",
                "Paired over prompts; filled where the interval leaves out no difference. A factor's null is 1.",
                differences,
                compare_charts.differences,
                "run",
            )
        )
    return [picture for picture in pictures if len(picture.table)]


def evidence_text(evidence: Evidence) -> str:
    """A figure behind a finding, in words."""
    share = evidence.unit == "share"
    low = math.nan if evidence.low is None else evidence.low
    high = math.nan if evidence.high is None else evidence.high
    form = ".1%" if share else ".3g"
    text = interval_text(evidence.value, low, high, form)
    unit = "" if share or not evidence.unit else f" {evidence.unit}"
    if evidence.unit == "x":
        figure = interval_text(evidence.value, low, high, form, False)
        text, unit = f"{figure}x{text.removeprefix(figure)}", ""
    limit = "" if evidence.threshold is None else f", limit {evidence.threshold:{'.0%' if share else '.3g'}}"
    over = f", over {evidence.over}" if evidence.over else ""
    return f"{evidence.name}: {text}{unit}{limit}{over}"


def _part(label: str, run: Run, depth: int | None, thresholds: Thresholds | Path | None) -> RunPart:
    assessment = assess(run, thresholds, depth=depth)
    summary = assessment.at_thresholds(run.summary(depth))
    found = verdict(summary, causes_of(assessment, run.info.checkpoint.switches.get("carry") == "post"))
    return RunPart(label, found, assessment, _lengths(summary), _facts(run, summary), _notes(run, assessment))


def _lengths(summary: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    lengths = summary["acceptance_length"]
    rows = []
    for key, (name, meaning) in _LENGTHS.items():
        value, ends = figure(lengths, key), bounds(lengths, key)
        if value is not None:
            low, high = ends or (math.nan, math.nan)
            told = meaning + logged(summary["settings"]) if meaning.endswith(": ") else meaning
            rows.append((name, interval_text(value, low, high, ".2f"), told))
    return rows


def _facts(run: Run, summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    info = run.info
    origins = info.checkpoint.origins
    facts = [
        ("checkpoint", f"{info.checkpoint.path} ({info.checkpoint.layout})"),
        ("target", info.target.name),
        ("steps", str(len(summary["steps"]))),
    ]
    for name in _SWITCHES:
        if name in info.checkpoint.switches:
            origin = origins.get(name)
            source = f" (from {origin['source']})" if isinstance(origin, Mapping) and origin.get("source") else ""
            facts.append((name, f"{_plain(info.checkpoint.switches[name])}{source}"))
    found = counts(run)
    facts += [
        ("prompts", f"{found['prompts']:,}"),
        ("positions", f"{found['anchors']:,} at which a chain starts"),
        ("sink positions", _plain(info.target.sinks) or "none"),
        ("run", str(run.folder)),
    ]
    for key in ("driftscope", "started", "device"):
        if info.provenance.get(key):
            facts.append((key, str(info.provenance[key])))
    return facts


def _notes(run: Run, assessment: Assessment) -> list[str]:
    found = counts(run)
    notes = [str(text) for text in run.info.checkpoint.warnings]
    if found["loop"] and "DS301" not in {finding.code for finding in assessment.findings}:
        notes.append(
            f"{found['loop']:,} of {found['anchors']:,} positions lie where the target repeats itself: left out of every "
            "figure but the served length"
        )
    if found["near_tie"]:
        notes.append(f"{found['near_tie']:,} positions have a near tie of the target within reach")
    return notes


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "none"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(_plain(part) for part in value)
    return str(value)


def _compared(name: str, title: str, about: str, frame: pd.DataFrame, draw: Any, across: str) -> Picture:
    chart: Chart = draw(frame)
    return Picture(name, "compare", title, about, chart, _wide(frame, across))


def _wide(frame: pd.DataFrame, across: str) -> pd.DataFrame:
    """A row per figure, a column per run or effect."""
    rows: dict[str, dict[str, str]] = {}
    for entry in frame.to_dict("records"):
        name = f"{entry['label']} ({entry['unit']})" if entry["unit"] else entry["label"]
        text = interval_text(entry["mean"], entry["low"], entry["high"], ".3g")
        rows.setdefault(name, {"figure": name})[str(entry[across])] = text
    return pd.DataFrame(list(rows.values())).fillna("–")  # noqa: RUF001


def title_of(runs: Runs) -> str:
    """The headline of the report."""
    targets = dict.fromkeys(short_name(run.info.target.name) for run in runs)
    return f"{', '.join(labelled(runs))}, drafting for {', '.join(targets)}"
