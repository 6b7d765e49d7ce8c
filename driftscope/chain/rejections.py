"""Why chains end where they do: one reason for each rejected anchor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Int
from numpy.typing import NDArray

from driftscope.chain.patches import FACTORS, OWN, REAL

Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Rejections:
    """One entry per anchor; where nothing was rejected, `step` is 0 and `reason` None."""

    step: Int[NDArray[Any], " anchor"]
    """First step whose drafted token differs from the text."""
    reason: list[str | None]
    """One of `driftscope.chain.patches.REASONS`."""
    mended: dict[str, Bool[NDArray[Any], " anchor"]]
    """By factor: whether this one alone, made real, drafts the text's token at the rejected step. Empty for a block."""
    gained: Int[NDArray[Any], " anchor"]
    """Accepted steps at which the row without drafting is wrong."""


def rejections(
    right: Mapping[str, Bool[NDArray[Any], "anchor step"]],
    known: Bool[NDArray[Any], "anchor step"],
    undecided: Bool[NDArray[Any], "anchor step"],
) -> Rejections:
    """right: by patch (`driftscope.chain.patches`), whether the text's token is drafted; at least `own` and `real`. known: the
    text's token is in the draft vocabulary. undecided: the target is near a tie there."""
    own = right[OWN]
    alive = np.logical_and.accumulate(own, 1)
    rejected = ~alive[:, -1]
    at = (~alive).argmax(1)
    anchor = np.arange(len(own))

    def there(values: Bools) -> Bools:
        return values[anchor, at] & rejected

    mended = {factor: there(right[factor]) for factor in FACTORS if factor in right}
    alone = np.sum(list(mended.values()), axis=0) if mended else np.zeros(len(own))
    # From the last to the first: an earlier reason replaces a later one.
    reason = np.full(len(own), "several" if mended else "block", dtype=object)
    for factor, mends in mended.items():
        reason[mends & (alone == 1)] = factor
    reason[there(~right[REAL])] = "drafter"
    reason[there(undecided)] = "target_undecided"
    reason[there(~known)] = "vocabulary"
    reason[~rejected] = None
    return Rejections(
        step=np.where(rejected, at + 1, 0),
        reason=reason.tolist(),
        mended=mended,
        gained=(alive & ~right[REAL]).sum(1),
    )
