"""What `driftscope plan` answers: a run's chains and trees times a model of costs, rules of verification, and kinds of traffic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from driftscope import stats
from driftscope.figures.rules import run_rules
from driftscope.figures.traffic import traffic_figures
from driftscope.figures.trees import run_trees
from driftscope.planning.adaptive import early_stop, oracle
from driftscope.planning.calibration import calibration
from driftscope.planning.choices import choices, served_lengths
from driftscope.planning.costs import CostModel
from driftscope.planning.rounds import Drafts, read_drafts
from driftscope.planning.settings import engine_settings
from driftscope.planning.trees import best_tree, tree_plans

if TYPE_CHECKING:
    from driftscope.runs.folder import RunFolder


def drafts_in_one_pass(run: RunFolder) -> bool:
    """Whether the drafter makes all steps at once."""
    return run.info.checkpoint.switches.get("carry") == "none"


def plan(
    run: RunFolder, costs: CostModel | None = None, longest: int | None = None, *, resamples: int = stats.RESAMPLES
) -> dict[str, Any]:
    """Ready for JSON: `lengths` per K (`served_lengths`), the drafter's `calibration`, `trees` (`tree_plans`), `rules`
    (`driftscope.figures.rules`) and `traffic` (`driftscope.figures.traffic`) as far as they were measured. With costs also
    `batches`, the choices, the oracle's bound and the early stop of each batch size, and `settings` of engines for the smallest
    one.

    longest: the largest K; the run's depth without it. Raises RunError for a run without acceptance, DriftscopeError for costs that
    lack a K.
    """
    drafts = read_drafts(run, longest)
    info = run.info
    trees = tree_plans(run_trees(run, resamples=resamples), costs)
    found: dict[str, Any] = {
        "run": str(run.folder),
        "checkpoint": info.checkpoint.path,
        "target": info.target.name,
        "depth": drafts.depth,
        "prompts": len(drafts.prompts),
        "lengths": served_lengths(drafts, resamples=resamples),
        "calibration": calibration(drafts, resamples=resamples),
        "trees": trees,
        "rules": run_rules(run, resamples=resamples),
        "traffic": traffic_figures(run, drafts.depth, resamples=resamples),
        "batches": [],
        "settings": {},
    }
    if costs is not None:
        costs.for_lengths(drafts.depth)
        found["costs"] = costs.to_dict()
        found["batches"] = _batches(drafts, costs, resamples)
        found["settings"] = _settings(run, found)
    return found


def _batches(drafts: Drafts, costs: CostModel, resamples: int) -> list[dict[str, Any]]:
    return [
        {
            "batch": cost.batch,
            "plain": cost.plain,
            **choices(drafts, costs, cost, resamples=resamples),
            "oracle": oracle(drafts, costs, cost, resamples=resamples),
            "early_stop": early_stop(drafts, costs, cost, resamples=resamples),
        }
        for cost in costs.batches
    ]


def _settings(run: RunFolder, found: dict[str, Any]) -> dict[str, str]:
    """Of the smallest batch; vLLM also takes another K for every batch size."""
    checkpoint = run.info.checkpoint
    batch = found["batches"][0]
    best = batch.get("best", {"k": 0, "speed_up": {"mean": 1.0}})
    tree = best_tree(found["trees"], batch["batch"], max(1.0, best["speed_up"]["mean"]))
    schedule = [(part["batch"], part["best"]["k"]) for part in found["batches"] if "best" in part]
    return engine_settings(checkpoint.switches, checkpoint.path, best["k"], tree, schedule)
