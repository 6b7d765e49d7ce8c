"""Which of the known causes of drift a single run shows, and the published remedy, which a single run cannot test."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from driftscope.findings.cost import DriftCost
from driftscope.findings.cost_words import NOTHING
from driftscope.findings.evaluate import assess
from driftscope.findings.model import Assessment, Finding
from driftscope.findings.thresholds import Thresholds
from driftscope.findings.words import listed, plain, with_interval

if TYPE_CHECKING:
    from driftscope.runs.run import Run

NORM, FUSED = "DS101", "DS103"
UNTESTED = "untested here, it takes a checkpoint trained with it"
"""What a single run has to say of a remedy."""
_CAUSES = {NORM: "norm growth", FUSED: "fused-input imbalance"}


@dataclass(frozen=True)
class Causes:
    """What is seen of the two causes in arXiv 2605.09992, and what patching says of their cost."""

    seen: tuple[str, ...]
    """Codes of the causes that are seen: DS101, DS103."""
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
        sentence = f"{'Both known causes are' if len(seen) > 1 else 'One known cause is'} seen: {there}"
        if told:
            sentence += ", though attention stays where it is without drafting"
        elif not drift:
            sentence += "; whether attention moves could not be measured"
        sentence += f"{_cost(assessment.cost, seen)}."
        return Causes(seen, sentence, _remedy(seen, post_norm))
    out = [name for code, name in _CAUSES.items() if code in assessment.clear]
    if NORM in why and post_norm:
        out.append("norm growth, which a post-norm carry excludes by construction,")
    blind = [name for code, name in _CAUSES.items() if code in why and not (code == NORM and post_norm)]
    neither = f"neither {' nor '.join(out)} is there" if len(out) > 1 else f"{out[0]} is not there" if out else ""
    unknown = f"{listed(blind)} could not be measured" if blind else ""
    rest = "; ".join(part for part in (neither, unknown) if part)
    if drift:
        return Causes((), f"Attention moves without a known cause in sight: {rest}.")
    if told:
        return Causes((), f"Attention does not move; {rest}.")
    return Causes((), f"Whether attention moves could not be measured; {rest}.")


def _size(finding: Finding) -> str:
    """The figure that is beyond its threshold, with its name: the rule has several."""
    beyond = [part for part in finding.evidence if part.threshold is not None]
    if not beyond:
        return ""
    unit = beyond[0].unit if beyond[0].unit == "x" else ""
    return f" ({plain(beyond[0].value)}{unit}, {beyond[0].name})"


def _cost(cost: DriftCost | None, seen: tuple[str, ...]) -> str:
    """What patching says: a cause is at work only where its path costs something."""
    if cost is None or "state" not in cost.paths:
        return f"; whether {'they cost' if len(seen) > 1 else 'it costs'} anything was not measured"
    clauses = []
    if NORM in seen:
        clauses.append(_norm_cost(cost))
    if FUSED in seen:
        clauses.append("what the imbalance costs takes a checkpoint trained with FC-norm to tell")
    return "".join(f"; {clause}" for clause in clauses)


def _norm_cost(cost: DriftCost) -> str:
    state, norm = cost.paths["state"], cost.parts.get("state_rms")
    if norm is not None:
        size = with_interval(norm.shapley, sign=not norm.costs)
        return f"the norm alone {'costs' if norm.costs else NOTHING + ':'} {size} tokens"
    if not state.costs:
        return f"the growth {NOTHING}: {with_interval(state.shapley, sign=True)} tokens through the carried state"
    told = f"the carried state costs {with_interval(state.shapley)} tokens"
    return f"{told}, how much of it through its norm was not split (--probe-option cost.split_state=true)"


def _remedy(seen: tuple[str, ...], post_norm: bool) -> str:
    fixes = []
    if NORM in seen and not post_norm:
        fixes.append("a post-norm carry")
    if FUSED in seen:
        fixes.append("FC-norm")
    if not fixes:
        return ""
    return f"Published remedy: {listed(fixes)} (EAGLE 3.1); {UNTESTED}."
