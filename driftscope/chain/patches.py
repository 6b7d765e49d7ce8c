"""Which parts of a chain's steps are put to what the real rows have. Nothing here imports torch."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

Part = Literal["own", "real", "resized"]

FACTORS = ("state", "pattern", "values")
"""What a step takes in: the state that enters it, the attention row of every layer and head, the value of the row it adds."""
OWN: Part = "own"
REAL: Part = "real"
_BOTH: tuple[Part, ...] = (OWN, REAL)


@dataclass(frozen=True)
class Patch:
    """Where each factor comes from. A `resized` state is the chain's own at the RMS of the real one."""

    state: Part = OWN
    pattern: Part = OWN
    values: Part = OWN

    @property
    def name(self) -> str:
        """`own`, `real`, or what is not the chain's own, such as `state+values`; a resized state is `rms`."""
        return patch_name({factor for factor in FACTORS if getattr(self, factor) == REAL}, self.state == "resized")


def patch_name(real: Collection[str], resized: bool = False) -> str:
    """The name of the patch under which these factors are real."""
    named = [*(["rms"] if resized else []), *(factor for factor in FACTORS if factor in real)]
    return REAL if len(real) == len(FACTORS) else "+".join(named) or OWN


def patches(split_state: bool = False) -> tuple[Patch, ...]:
    """The eight combinations of own and real; with the state split, also a resized state with every pattern and values."""
    plain = [Patch(state, pattern, values) for values in _BOTH for pattern in _BOTH for state in _BOTH]
    resized = [Patch("resized", pattern, values) for values in _BOTH for pattern in _BOTH] if split_state else []
    return (*plain, *resized)


REASONS = ("vocabulary", "target_undecided", "drafter", *FACTORS, "several", "block")
"""Why a chain is rejected, the first that holds: the text's token cannot be drafted; the target itself is undecided there; the
row without drafting is wrong too; drift that one factor alone mends when it is real, or that none or more than one does. Of a
drafter of all steps at once, `block` stands for the drift: what drafting in one block costs."""
