"""The figures of the probes that go beyond the summary: pure functions from a run's tables, with intervals over prompts.

One module per probe. A figure is `{"mean": .., "low": .., "high": ..}`, as in the summary; what was not measured is absent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from driftscope import stats
from driftscope.figures.acceptance import acceptance_figures
from driftscope.figures.depth import depth_figures
from driftscope.figures.layers import layers_figures
from driftscope.figures.noise import noise_figures
from driftscope.figures.pin import pin_figures

if TYPE_CHECKING:
    from driftscope.run import Run

__all__ = [
    "acceptance_figures",
    "depth_figures",
    "layers_figures",
    "noise_figures",
    "pin_figures",
    "probe_figures",
]


def probe_figures(run: Run, *, resamples: int = stats.RESAMPLES) -> dict[str, Any]:
    """The figures of every probe that the run holds, by the probe's name, ready for JSON."""
    found: dict[str, Any] = {}
    held = run.probes
    if "clean" in held:
        found["acceptance"] = acceptance_figures(run.table("anchors", probe="clean"), resamples=resamples)
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
    return found
