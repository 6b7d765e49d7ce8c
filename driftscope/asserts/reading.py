"""What assertions read off a run, or a line that says why they cannot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from driftscope.errors import RunError
from driftscope.findings.measured import interval_of
from driftscope.runs.run import Run
from driftscope.runs.summary import counts
from driftscope.stats.intervals import Interval


def summary_to(run: Run, depth: int | None) -> dict[str, Any]:
    """The summary of at least two steps, up to `depth`. RunError where there are fewer."""
    summary = run.summary(depth)
    held = len(summary["steps"])
    if held < 2 or (depth is not None and depth < 2):
        asked = "" if depth is None else f", step {depth} asked"
        raise RunError(f"run {run.folder} holds {held} steps{asked}; drift takes two: probe again with --depth")
    return summary


def needed(run: Run, content: Mapping[str, Any], label: str, *path: str) -> Interval | None:
    """A figure of a step, None where it is not measurable there. RunError where no step of the run holds it."""
    value = found(content, *path)
    if value is None and all(found(step, *path) is None for step in run.summary()["steps"]):
        raise RunError(
            f"run {run.folder} holds no {label}; probe it with norms, attention and acceptance among --probes"
        )
    return value


def found(content: Mapping[str, Any], *path: str) -> Interval | None:
    """A figure at a path of the summary, None where it is not."""
    value: Any = content
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return interval_of(value)


def prompts_of(run: Run) -> int:
    """Prompts with clean chains."""
    return counts(run)["prompts"]
