"""Whether a run's verdict can be trusted at all: the target's texts first, then the drafter's positive control."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from driftscope.audit.positive import PositiveControl, positive_control
from driftscope.audit.texts import judge_texts
from driftscope.captures.capture import Capture
from driftscope.errors import DriftscopeError
from driftscope.progress import ProgressReport

if TYPE_CHECKING:
    from driftscope.chain.pair import Pair
    from driftscope.runs.run import Run

_FOLLOWS = {
    "shuffled features": "it ignores the target's features",
    "shuffled tokens": "it ignores the tokens",
    "random drafter": "its weights are as good as random ones",
}


def keep_texts(run: Run, pair: Pair, captures: Sequence[Capture], progress: ProgressReport) -> str:
    """Judge the target's texts and store what was seen, unless the run has it already. Returns why they tell nothing."""
    held = dict(run.info.trust or {})
    if "texts" not in held:
        found = judge_texts(pair.target, captures)
        if found is None:
            return ""
        held["texts"] = found.to_dict()
        run.update(trust=held)
        if found.reason:
            progress.message(found.reason)
    return str(held["texts"].get("reason", ""))


def keep_control(run: Run, pair: Pair, captures: Sequence[Capture], progress: ProgressReport) -> None:
    """Measure the positive control and store it, unless the run has it already."""
    held = dict(run.info.trust or {})
    if "control" in held:
        return
    progress.message("positive control: does the drafter know these texts?")
    try:
        found = positive_control(pair, captures)
    except (DriftscopeError, RuntimeError) as error:
        # A failing control must not abort the probe.
        progress.message(f"positive control: it failed ({(str(error) or type(error).__name__).splitlines()[0]})")
        return
    if found is None:
        return
    # With another setting, the one that the audit found, it may well know the texts.
    misread = any(part["code"].startswith("DS2") for part in run.info.findings)
    reason = "" if misread else no_better(found)
    held["control"] = {**found.to_dict(), "reason": reason}
    run.update(trust=held)
    if reason:
        progress.message(reason)


def no_better(found: PositiveControl) -> str:
    """In words, which controls the drafter does not beat; empty where it beats all."""
    if not found.lost:
        return ""
    lost = [control for control in found.controls if not control.beaten]
    seen = ", ".join(f"{control.name} {control.agreement:.0%}" for control in lost)
    follows = _FOLLOWS["random drafter"] if len(lost) == len(found.controls) else _FOLLOWS[lost[0].name]
    return (
        f"the drafter predicts no better than its controls: at step 1 it agrees with the target at {found.agreement:.0%} of"
        f" {found.anchors} positions ({seen}); {follows}: untrained, damaged or another target's"
    )
