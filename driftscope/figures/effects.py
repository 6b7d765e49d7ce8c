"""Effects of making factors real, as sums over patches: which patches count, and how often."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from math import factorial

import numpy as np

from driftscope.chain.patches import FACTORS, OWN, REAL, patch_name
from driftscope.stats.intervals import Floats

WAYS = ("alone", "last", "shapley")
LENGTHS = ("actual", "undrifted", "cost")
ORDERS = factorial(len(FACTORS))
"""In which the factors can be made real."""


def contexts(factor: str) -> list[tuple[frozenset[str], int]]:
    """Which of the other factors are real already, and in how many of the ORDERS it is so: s! (n - 1 - s)! of n!.

    Source: Shapley, A Value for n-Person Games (1953).
    """
    others = [name for name in FACTORS if name != factor]
    return [
        (frozenset(real), factorial(len(real)) * factorial(len(others) - len(real)))
        for size in range(len(FACTORS))
        for real in combinations(others, size)
    ]


def effects(patches: Sequence[str]) -> dict[tuple[str, ...], Floats]:
    """Figure -> ORDERS times what to multiply the lengths of the patches with: whole numbers, so that no effect is exactly 0.

    `("actual",)`, `("undrifted",)`, `("cost",)`, and for each factor that was patched `(factor, way)` with the ways alone, last and
    shapley. The Shapley effects of the three factors sum to the cost, those of the split state to the state.
    """
    unit = dict(zip(patches, np.eye(len(patches)), strict=True))
    found: dict[tuple[str, ...], Floats] = {
        ("actual",): ORDERS * unit[OWN],
        ("undrifted",): ORDERS * unit[REAL],
        ("cost",): ORDERS * (unit[REAL] - unit[OWN]),
    }
    for name, pairs in _changes(patches).items():
        changes = [(unit[after] - unit[before], orders) for before, after, orders in pairs]
        found[name, "alone"], found[name, "last"] = ORDERS * changes[0][0], ORDERS * changes[-1][0]
        found[name, "shapley"] = sum((orders * change for change, orders in changes), np.zeros(len(patches)))
    return found


def _changes(patches: Sequence[str]) -> dict[str, list[tuple[str, str, int]]]:
    """Factor -> the patches before and after it is made real, from where all others are own to where they are real, and in how many
    orders."""
    found: dict[str, list[tuple[str, str, int]]] = {}
    for factor in FACTORS:
        if patch_name({factor}) in patches:
            found[factor] = [(patch_name(real), patch_name(real | {factor}), n) for real, n in contexts(factor)]
    if patch_name((), resized=True) in patches:
        middle = [(patch_name(real), patch_name(real, resized=True), n) for real, n in contexts("state")]
        found["state_rms"] = middle
        found["state_direction"] = [
            (resized, after, n) for (_, resized, n), (_, after, _) in zip(middle, found["state"], strict=True)
        ]
    return found
