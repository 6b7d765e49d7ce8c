"""The figures of the probes that go beyond the summary: pure functions from a run's tables, with intervals over prompts.

One module per probe. A figure is `{"mean": .., "low": .., "high": ..}`, as in the summary; what was not measured is absent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from driftscope import stats
from driftscope.figures.acceptance import acceptance_figures
from driftscope.figures.cost import cost_figures, run_cost
from driftscope.figures.depth import depth_figures
from driftscope.figures.layers import layers_figures
from driftscope.figures.length import length_figures
from driftscope.figures.noise import noise_figures
from driftscope.figures.pin import pin_figures
from driftscope.figures.rejections import rejection_figures
from driftscope.figures.template import template_figures

if TYPE_CHECKING:
    from driftscope.runs.run import Run

__all__ = [
    "acceptance_figures",
    "cost_figures",
    "depth_figures",
    "layers_figures",
    "length_figures",
    "noise_figures",
    "pin_figures",
    "probe_figures",
    "rejection_figures",
    "template_figures",
]


def probe_figures(run: Run, *, resamples: int = stats.RESAMPLES) -> dict[str, Any]:
    """The figures of every probe that the run holds, by the probe's name, ready for JSON."""
    found: dict[str, Any] = {}
    held = run.probes
    if "clean" in held:
        found["acceptance"] = acceptance_figures(run.table("anchors", probe="clean"), resamples=resamples)
    if "cost" in held:
        found["cost"] = run_cost(run, resamples=resamples)
    if "noise" in held:
        tables = run.table("steps", probe="noise"), run.table("variants", probe="noise")
        found["noise"] = noise_figures(*tables, resamples=resamples)
    if "pin" in held:
        found["pin"] = pin_figures(
            run.table("steps", probe="pin"), run.table("heads", probe="pin"), resamples=resamples
        )
    if "depth" in held:
        tables = run.table("anchors", probe="depth"), run.table("heads", probe="depth")
        found["depth"] = depth_figures(*tables, resamples=resamples)
    if "layers" in held:
        found["layers"] = layers_figures(run.table("similarity", probe="layers"), resamples=resamples)
    if "template" in held:
        parts = (run.table(name, probe="template") for name in ("steps", "heads", "conditions"))
        found["template"] = template_figures(*parts, resamples=resamples)
    if "length" in held:
        parts = (run.table(name, probe="length") for name in ("steps", "heads", "conditions", "variants"))
        limit = position_limit(run)
        found["length"] = length_figures(*parts, position_limit=limit, resamples=resamples)
    return found


def position_limit(run: Run) -> int | None:
    """The positions that the drafter's config names; None where it names none."""
    checkpoint = run.info.checkpoint
    origin = checkpoint.origins.get("rope.max_position", {})
    limit = checkpoint.switches.get("rope.max_position")
    return None if limit is None or origin.get("source", "default") == "default" else int(limit)
