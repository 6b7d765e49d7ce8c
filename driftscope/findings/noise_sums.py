"""Accepted length under noise on the carried state, as sums per prompt from which a half-point can be resampled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from driftscope.figures.grids import Grids, prompts_and_depth, variant
from driftscope.figures.noise import CLEAN
from driftscope.runs.parameters import NOISE, parameters_of
from driftscope.stats.intervals import Floats

if TYPE_CHECKING:
    from driftscope.runs.run import Run

SITE = "state"
Sums = tuple[Floats, Floats]
"""Accepted tokens and anchors, each [prompt]."""


@dataclass(frozen=True)
class NoiseSums:
    """The anchor mean without noise and at each alpha, ascending, seeds pooled."""

    prompts: list[str]
    reference: Sums
    levels: dict[float, Sums]

    @property
    def parts(self) -> tuple[Floats, ...]:
        """As `driftscope.stats.contrasts.log_half_point` takes them."""
        return (*self.reference, *(part for sums in self.levels.values() for part in sums))


def noise_sums(run: Run, prompts: Sequence[str] | None = None) -> NoiseSums | None:
    """Noise at every step on the state, over `prompts` or every prompt of the probe; None where it was not measured."""
    if "noise" not in run.probes:
        return None
    steps, variants = (run.table(name, probe="noise") for name in ("steps", "variants"))
    reference = variant(steps, CLEAN)
    conditions: dict[float, list[str]] = {}
    for name, told in parameters_of(variants, NOISE, kind="intervention").items():
        if told["site"] == SITE and told["steps"] == "every" and told["alpha"] > 0:
            conditions.setdefault(float(told["alpha"]), []).append(name)
    if reference.empty or not conditions:
        return None
    own, depth = prompts_and_depth(reference)
    chosen = own if prompts is None else list(prompts)
    grids = Grids(steps, chosen, depth)
    levels: dict[float, Sums] = {}
    for alpha, names in sorted(conditions.items()):
        seeds = [grids.lengths(name)["anchor_mean"] for name in names]
        accepted, anchors = (np.sum([seed[place] for seed in seeds], axis=0) for place in (0, 1))
        levels[alpha] = (accepted, anchors)
    return NoiseSums(chosen, grids.lengths(CLEAN)["anchor_mean"], levels)
