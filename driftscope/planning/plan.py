"""What `driftscope plan` answers: a run's chains times a model of costs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from driftscope import stats
from driftscope.planning.adaptive import early_stop, oracle
from driftscope.planning.calibration import calibration
from driftscope.planning.choices import choices, served_lengths
from driftscope.planning.costs import CostModel
from driftscope.planning.rounds import read_drafts
from driftscope.planning.settings import engine_settings

if TYPE_CHECKING:
    from driftscope.runs.folder import RunFolder


def drafts_in_one_pass(run: RunFolder) -> bool:
    """Whether the drafter makes all steps at once."""
    return run.info.checkpoint.switches.get("carry") == "none"


def plan(
    run: RunFolder, costs: CostModel, longest: int | None = None, *, resamples: int = stats.RESAMPLES
) -> dict[str, Any]:
    """Ready for JSON: `lengths` per K (`served_lengths`), `batches` with the choices, the oracle's bound and the early stop of each
    batch size, the drafter's `calibration`, and the `settings` of engines for the best K of the smallest batch.

    longest: the largest K; the run's depth without it. Raises RunError for a run without acceptance, DriftscopeError for costs that
    lack a K.
    """
    drafts = read_drafts(run, longest)
    costs.for_lengths(drafts.depth)
    batches = [
        {
            "batch": cost.batch,
            "plain": cost.plain,
            **choices(drafts, costs, cost, resamples=resamples),
            "oracle": oracle(drafts, costs, cost, resamples=resamples),
            "early_stop": early_stop(drafts, costs, cost, resamples=resamples),
        }
        for cost in costs.batches
    ]
    info = run.info
    best = batches[0].get("best", {}).get("k", 0)
    return {
        "run": str(run.folder),
        "checkpoint": info.checkpoint.path,
        "target": info.target.name,
        "depth": drafts.depth,
        "prompts": len(drafts.prompts),
        "costs": costs.to_dict(),
        "lengths": served_lengths(drafts, resamples=resamples),
        "batches": batches,
        "calibration": calibration(drafts, resamples=resamples),
        "settings": engine_settings(info.checkpoint.switches, info.checkpoint.path, best),
    }
