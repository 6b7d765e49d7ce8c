"""The short audit as part of a probe: made once, kept in the run, never in the way of what was asked for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from driftscope.audit.refusal import check_audited
from driftscope.audit.short import MIN_PROMPTS, ShortAudit, short_audit, short_boundaries
from driftscope.audit.told import audit_note
from driftscope.captures.capture import Capture
from driftscope.chain.pair import Pair
from driftscope.errors import DriftscopeError
from driftscope.progress import ProgressReport
from driftscope.target.prompts import load_prompts

if TYPE_CHECKING:
    from driftscope.runs.run import Run


def audited_boundaries(pair: Pair, prompts: str | Path | None) -> set[int]:
    """What the audit wants captured; nothing where there are too few prompts for it or the drafter is not audited."""
    try:
        check_audited(pair.config)
        if len(load_prompts(Path(prompts) if prompts is not None else None)) < MIN_PROMPTS:
            return set()
        return set(short_boundaries(pair))
    except DriftscopeError:
        return set()


def keep_short_audit(run: Run, pair: Pair, captures: Sequence[Capture], progress: ProgressReport) -> None:
    """Audit the pair on captures that are there and store the result and its finding, unless the run has one already."""
    if run.info.audit is not None:
        return
    progress.message("short audit: is it run as it was trained?")
    try:
        found = short_audit(pair, captures)
    except (DriftscopeError, RuntimeError, KeyError, ValueError) as error:
        # A failing short audit must not abort the probe.
        found = ShortAudit(reason=f"it failed ({(str(error) or type(error).__name__).splitlines()[0]})")
    others = [part for part in run.info.findings if found.finding is None or part["code"] != found.finding.code]
    findings = [*others, found.finding.to_dict()] if found.finding is not None else others
    run.update(audit=found.to_dict(), findings=findings)
    for line in found.warnings or (audit_note(run.info.audit),):
        progress.message(line)
