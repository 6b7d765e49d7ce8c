"""DS106: acceptance depends on how the prompt is wrapped."""

from __future__ import annotations

from driftscope.figures.template import template_figures
from driftscope.findings.advice import DRIFT_PAPER, EAGLE31
from driftscope.findings.measured import Measured, interval_of
from driftscope.findings.model import Coded, Definition, Evidence, Finding, NotMeasured, Threshold
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


FINDINGS = (
    Coded(
        Definition(
            "DS106",
            "Template sensitivity",
            meaning="Acceptance falls when the chat template, the BOS token or the system prompt is another than the one"
            " that the drafter was trained with.",
            measured="Accepted length per condition over that under the model's own template, on the same prompts.",
            limits="The target answers otherwise under another template, so part of a loss may be a harder text.",
            advice=(
                "Serve with the template of training, the BOS token included.",
                "Train on more than one template, or with BOS and system prompt left out at times.",
                EAGLE31,
            ),
            thresholds=("template_kept",),
            probes=("template",),
            sources=(DRIFT_PAPER, "sgl-project/SpecForge issue 296: a drafter trained with another chat template"),
        ),
        sensitivity,
        (
            Threshold(
                "template_kept",
                0.9,
                "accepted length under another template over that under the model's own",
                "In the published ablation the pre-norm drafter keeps 83, 62 and 49%, the post-norm one 97, 96 and 95%"
                f" ({DRIFT_PAPER}). 90% lies between.",
                below=1.0,
            ),
        ),
    ),
)
"""What is looked for here: its words, its rule, and its limits with the reason for each default."""
