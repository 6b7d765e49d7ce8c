"""A run's tables -> figures with intervals over prompts, and figures -> tidy rows: pure functions, one module a probe.

A figure is `{"mean": .., "low": .., "high": ..}`, as in the summary; what was not measured is absent.
"""

from driftscope.figures.acceptance import acceptance_figures
from driftscope.figures.cost import cost_figures, run_cost
from driftscope.figures.depth import depth_figures
from driftscope.figures.layers import layers_figures
from driftscope.figures.length import length_figures
from driftscope.figures.noise import noise_figures
from driftscope.figures.pin import pin_figures
from driftscope.figures.rejections import rejection_figures
from driftscope.figures.template import template_figures

__all__ = [
    "acceptance_figures",
    "cost_figures",
    "depth_figures",
    "layers_figures",
    "length_figures",
    "noise_figures",
    "pin_figures",
    "rejection_figures",
    "run_cost",
    "template_figures",
]
