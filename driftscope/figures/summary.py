"""All figures of a run in one mapping."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from driftscope.figures.cost import run_cost
from driftscope.runs.summary import summarise

if TYPE_CHECKING:
    from driftscope.runs.run import Run


def run_summary(run: Run, depth: int | None = None) -> dict[str, Any]:
    """The figures of the clean chains (`driftscope.runs.summary.summarise`), and what drift costs where that was measured.

    Raises RunError if the run holds fewer steps than `depth`.
    """
    return {**summarise(run, depth), **run_cost(run, depth)}
