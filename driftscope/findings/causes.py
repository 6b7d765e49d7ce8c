"""Which of the known causes of drift a single run shows, and the published remedy, which a single run cannot test."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from driftscope.findings.evaluate import assess
from driftscope.findings.model import Assessment, Finding
from driftscope.findings.thresholds import Thresholds
from driftscope.findings.words import listed, plain

if TYPE_CHECKING:
    from driftscope.runs.run import Run

NORM, FUSED = "DS101", "DS103"
_CAUSES = {NORM: "norm growth", FUSED: "fused-input imbalance"}


@dataclass(frozen=True)
class Causes:
    """What is seen of the two causes in arXiv 2605.09992, in two sentences."""

    seen: tuple[str, ...]
    """Codes of the causes that are at work: DS101, DS103."""
    sentence: str
    remedy: str = ""
    """The published fix for what is seen, marked as untested; empty where nothing is seen."""

    @property
    def text(self) -> str:
        """Both sentences."""
        return f"{self.sentence} {self.remedy}".rstrip()


def causes(run: Run, thresholds: Thresholds | Path | None = None, *, depth: int | None = None) -> Causes:
    """The causes on a run, at the thresholds of `driftscope.findings.assess`."""
    return causes_of(assess(run, thresholds, depth=depth), run.info.checkpoint.switches.get("carry") == "post")


def causes_of(assessment: Assessment, post_norm: bool) -> Causes:
    """The causes of an assessment that was made already."""
    found = {finding.code: finding for finding in assessment.findings}
    why = {part.code: part.reason for part in assessment.unmeasured}
    seen = tuple(code for code in _CAUSES if code in found)
    drift = "DS102" in found
    told = "DS102" in assessment.clear
    if seen:
        there = listed([f"{_CAUSES[code]}{_size(found[code])}" for code in seen])
        sentence = f"{'Both known causes are' if len(seen) > 1 else 'One known cause is'} there: {there}"
        if told:
            sentence += ", though attention stays where it is without drafting"
        elif not drift:
            sentence += "; whether attention drifts could not be measured"
        sentence += "."
        return Causes(seen, sentence, _remedy(seen, post_norm))
    out = [name for code, name in _CAUSES.items() if code in assessment.clear]
    if NORM in why and post_norm:
        out.append("norm growth, which a post-norm carry excludes by construction,")
    blind = [name for code, name in _CAUSES.items() if code in why and not (code == NORM and post_norm)]
    neither = f"neither {' nor '.join(out)} is there" if len(out) > 1 else f"{out[0]} is not there" if out else ""
    unknown = f"{listed(blind)} could not be measured" if blind else ""
    rest = "; ".join(part for part in (neither, unknown) if part)
    if drift:
        return Causes((), f"Attention drifts without a known cause in sight: {rest}.")
    if told:
        return Causes((), f"No drift of attention; {rest}.")
    return Causes((), f"Whether attention drifts could not be measured; {rest}.")


def _size(finding: Finding) -> str:
    beyond = [part for part in finding.evidence if part.threshold is not None]
    return f" ({plain(beyond[0].value)}{beyond[0].unit if beyond[0].unit == 'x' else ''})" if beyond else ""


def _remedy(seen: tuple[str, ...], post_norm: bool) -> str:
    fixes = []
    if NORM in seen and not post_norm:
        fixes.append("a post-norm carry")
    if FUSED in seen:
        fixes.append("FC-norm")
    if not fixes:
        return ""
    return f"Published remedy: {listed(fixes)} (EAGLE 3.1); untested here, it takes a checkpoint trained with it."
