"""DS106: acceptance depends on how the prompt is wrapped."""

from __future__ import annotations

from driftscope.figures.template import template_figures
from driftscope.findings.measured import Measured, interval_of
from driftscope.findings.model import Evidence, Finding, NotMeasured
from driftscope.findings.registry import definition
from driftscope.findings.words import counted, listed, percent
from driftscope.stats.intervals import MIN_PROMPTS, Interval

CODE = "DS106"


def sensitivity(measured: Measured) -> Finding | NotMeasured | None:
    """A condition that keeps less of the accepted length than the threshold."""
    if "template" not in measured.run.probes:
        return NotMeasured(CODE, "the template probe was not run")
    tables = (measured.run.table(name, probe="template") for name in ("steps", "heads", "conditions"))
    figures = template_figures(*tables, resamples=measured.resamples)
    kept: dict[str, tuple[Interval, int]] = {}
    for name, found in figures.get("conditions", {}).items():
        share = interval_of(found.get("length_kept", {}).get("anchor_mean"))
        if share is not None and share.high is not None:
            kept[name] = share, found["paired"]
    if not kept:
        return NotMeasured(CODE, f"no condition with the {MIN_PROMPTS} prompts that an interval takes")
    limit = measured.thresholds["template_kept"]
    lost = {name: part for name, part in kept.items() if _lost(part[0], limit)}
    if not lost:
        return None
    worst_first = sorted(lost, key=lambda name: lost[name][0].mean)
    evidence = tuple(
        Evidence.of(
            f"length kept under {name}",
            kept[name][0],
            unit="share",
            over=counted(kept[name][1], "prompt"),
            threshold=limit if name in lost else None,
        )
        for name in sorted(kept, key=lambda name: kept[name][0].mean)
    )
    told = listed([f"{percent(lost[name][0].mean)} under {name}{_ends(lost[name][0])}" for name in worst_first])
    statement = f"Of the accepted length under the model's own template, the drafter keeps {told}."
    about = definition(CODE)
    return Finding(CODE, about.title, statement, evidence, about.advice)


def _lost(share: Interval, limit: float) -> bool:
    return share.mean < limit and share.high is not None and share.high < 1


def _ends(share: Interval) -> str:
    return "" if share.low is None or share.high is None else f" (95% {percent(share.low)} to {percent(share.high)})"
