"""The rows of the patched chains as sums per prompt, which every figure of the cost is made of."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from driftscope import stats
from driftscope.chain.patches import OWN
from driftscope.errors import RunError
from driftscope.runs.prompt_sums import check_filled, prompt_codes
from driftscope.stats.intervals import Floats

PREFIX = "cost/"
_KEYS = ["variant", "prompt", "anchor", "step"]


@dataclass(frozen=True)
class CostSums:
    """What every patch drafted right, chain by chain; chains are in the order of prompts and anchors."""

    patches: tuple[str, ...]
    prompts: list[str]
    prompt: NDArray[np.int64]
    """[chain] place in `prompts`."""
    anchor: NDArray[np.int64]
    loop: NDArray[np.bool_]
    right: NDArray[np.bool_]
    """[patch, chain, step] the drafted token equals the text's."""

    @property
    def depth(self) -> int:
        return self.right.shape[2]

    @cached_property
    def accepted(self) -> NDArray[np.bool_]:
        """[patch, chain, step] right at this and all earlier steps."""
        return np.logical_and.accumulate(self.right, 2)

    @cached_property
    def alive(self) -> NDArray[np.bool_]:
        """[chain, step] the undisturbed chain is right at all earlier steps."""
        return stats.reached(self.accepted[self.patches.index(OWN)])

    @cached_property
    def anchors(self) -> Floats:
        """[prompt] anchors outside loops."""
        return self.by_prompt(np.ones(len(self.loop)))

    @cached_property
    def lengths(self) -> Floats:
        """[prompt, patch, K] accepted tokens at K drafted ones, summed over the anchors outside loops."""
        return self.by_prompt(self.accepted.transpose(1, 0, 2)).cumsum(2)

    def by_prompt(self, values: NDArray[np.generic]) -> Floats:
        """[prompt, ...] sums of `values[chain, ...]` over the chains outside loops."""
        total = np.zeros((len(self.prompts), *values.shape[1:]))
        np.add.at(total, self.prompt[~self.loop], values[~self.loop].astype(np.float64))
        return total

    @property
    def consecutive(self) -> bool:
        """Whether no prompt skips an anchor, as a served walk needs."""
        return bool((np.diff(self.anchor)[np.diff(self.prompt) == 0] == 1).all())

    def served(self, patch: str) -> tuple[Floats, Floats]:
        """[prompt] accepted tokens and rounds of the served walk under a patch, loops kept."""
        counts = self.accepted[self.patches.index(patch)].sum(1)
        walks = [stats.served_walk(counts[self.prompt == n], self.depth) for n in range(len(self.prompts))]
        return np.array([float(walk.total) for walk in walks]), np.array([float(walk.rounds) for walk in walks])

    def only(self, prompts: Collection[str]) -> CostSums:
        """The same of some prompts."""
        names = [name for name in self.prompts if name in prompts]
        place = np.array([names.index(name) if name in prompts else -1 for name in self.prompts], dtype=np.int64)
        kept = place[self.prompt] >= 0
        return replace(
            self,
            prompts=names,
            prompt=place[self.prompt][kept],
            anchor=self.anchor[kept],
            loop=self.loop[kept],
            right=self.right[:, kept],
        )


def cost_sums(anchors: pd.DataFrame, depth: int | None = None) -> CostSums | None:
    """From the `anchors` rows of the probe; None where it was not measured, or the texts are not confirmed as the target's.

    `depth`: only the first steps. Raises RunError for rows that are not of every patch, anchor and step.
    """
    rows = anchors[anchors["match"].notna()]
    if depth is not None:
        rows = rows[rows["step"] <= depth]
    if rows.empty:
        return None
    variant, names = pd.factorize(rows["variant"].astype(str))
    prompt, prompts = prompt_codes(rows["prompt"])
    anchor, step = (rows[name].to_numpy(np.int64) for name in ("anchor", "step"))
    order = np.lexsort((step, anchor, prompt, variant))
    steps = int(step.max())
    check_filled(len(names) * steps, len(rows))
    shape = len(names), len(rows) // max(1, len(names) * steps), steps
    whole = shape[0] * shape[1] * shape[2] == len(rows)
    keys = [part[order].reshape(shape) for part in (variant, prompt, anchor, step)] if whole else []
    wanted = (np.arange(shape[0])[:, None, None], *(part[:1, :, :1] for part in keys[1:3]), np.arange(1, steps + 1))
    if not whole or not all((part == one).all() for part, one in zip(keys, wanted, strict=True)):
        raise RunError(
            "the rows of probe cost are not one for every patch, anchor and step: changed or damaged; measure again"
        )
    return CostSums(
        patches=tuple(str(name).removeprefix(PREFIX) for name in names),
        prompts=prompts,
        prompt=keys[1][0, :, 0],
        anchor=keys[2][0, :, 0],
        loop=rows["loop"].to_numpy(bool)[order].reshape(shape)[0, :, 0],
        right=rows["match"].to_numpy(bool)[order].reshape(shape),
    )
