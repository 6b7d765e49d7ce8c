"""Acceptance lengths, and accepted against rejected chains."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from driftscope.stats.intervals import RESAMPLES, Intervals, bca

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class ServedWalk:
    """The rounds that an engine would serve on one prompt."""

    visited: Ints
    """[round] index of the anchor at which the round starts, 0 = the first anchor (P-1)."""
    accepted: Ints
    """[round] accepted draft tokens, without the bonus token."""

    @property
    def rounds(self) -> int:
        return len(self.accepted)

    @property
    def total(self) -> int:
        """Accepted draft tokens over all rounds."""
        return int(self.accepted.sum())

    @property
    def total_sq(self) -> int:
        """Sum over rounds of the squared accepted count."""
        return int((self.accepted**2).sum())


def served_walk(accepted: ArrayLike, depth: int) -> ServedWalk:
    """The walk t <- t + min(accepted(t), depth) + 1 over consecutive anchors, from the first to where it leaves them.

    `accepted[anchor]` counts the tokens accepted from each anchor. The mean over its rounds, not the mean over all
    anchors, is what an engine reports with `depth` draft tokens a round.
    """
    if depth < 1:
        raise ValueError(f"depth must be at least 1, got {depth}")
    counts = np.minimum(np.asarray(accepted, dtype=np.int64), depth)
    steps = (counts + 1).tolist()
    visited = []
    place = 0
    while place < len(steps):
        visited.append(place)
        place += steps[place]
    index = np.array(visited, dtype=np.int64)
    return ServedWalk(index, counts[index])


def reached(accepted: ArrayLike) -> NDArray[np.bool_]:
    """Whether all earlier steps were accepted: `accepted[..., step]` (joint) shifted by one step, True at step 1."""
    joint = np.asarray(accepted, dtype=bool)
    return np.concatenate([np.ones_like(joint[..., :1]), joint[..., :-1]], axis=-1)


@dataclass(frozen=True)
class ChainSplit:
    """A quantity at each step [step]: on chains accepted so far, on rejected ones, and the difference."""

    accepted: Intervals
    rejected: Intervals
    difference: Intervals
    """Accepted minus rejected, over prompts that have both."""


def split_chains(
    values: ArrayLike, accepted: ArrayLike, prompts: ArrayLike, *, resamples: int = RESAMPLES
) -> ChainSplit:
    """`values[anchor, step]` split at step k by whether steps 1..k-1 were all `accepted[anchor, step]` (joint).

    `prompts[anchor]` is any label. After the first rejection the carried state stands for a text that will not be
    served. Step 1 has no rejected chains. NaN values are left out.
    """
    data = np.asarray(values, dtype=np.float64)
    on_path = reached(accepted)
    _, code = np.unique(np.asarray(prompts), return_inverse=True)
    means = []
    for part in (on_path, ~on_path):
        use = part & np.isfinite(data)
        total, count = np.zeros((2, code.max(initial=-1) + 1, data.shape[1]))
        np.add.at(total, code, np.where(use, data, 0.0))
        np.add.at(count, code, use)
        means.append(np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0))
    kept, lost = means
    return ChainSplit(*(bca(part, resamples=resamples) for part in (kept, lost, kept - lost)))
