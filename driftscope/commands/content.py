"""What `--json` prints of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from driftscope.findings import Assessment
    from driftscope.runs.run import Run


def run_content(run: Run, assessment: Assessment, depth: int | None) -> dict[str, Any]:
    """The summary with onsets at the thresholds in force, the verdict in words, findings and what was not asked."""
    from driftscope.findings.causes import causes_of
    from driftscope.findings.verdict import verdict

    summary = assessment.at_thresholds(run.summary(depth))
    post_norm = summary["checkpoint"]["switches"].get("carry") == "post"
    found = verdict(summary, causes_of(assessment, post_norm))
    told = {"kind": found.kind, "headline": found.headline, "cause": found.cause or None}
    audit = {"audit": run.info.audit} if run.info.audit is not None else {}
    return {**summary, "verdict": told, **audit, **assessment.to_dict()}
