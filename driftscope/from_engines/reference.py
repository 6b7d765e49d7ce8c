"""The whole target as the judge: its own states over a few texts say which boundary each stored state is."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from driftscope.captures.record import record
from driftscope.errors import DriftscopeError
from driftscope.from_engines.formats import Dump
from driftscope.from_engines.placing import Placed
from driftscope.target.model import Target

TEXTS = 2
FAR = 0.2
"""Relative L2 distance beyond which a state is none of this target's, whatever engine and precision made it."""


def check_with_target(target: Target, dumps: Sequence[Dump], placed: Placed) -> list[str]:
    """Compare every stored state with every boundary of the target. A line with what was seen.

    Raises DriftscopeError naming the boundary that a misplaced state is, or that it is none.
    """
    worst = 0.0
    for dump in dumps[:TEXTS]:
        made = record(target, dump.token_ids.tolist(), range(target.num_layers + 1), label=dump.name)
        known = {b: state.float() for b, state in made.boundaries.items()}
        after = made.final.float()
        columns: list[tuple[str, torch.Tensor, int | None]] = [
            (f"state {column}", dump.states[:, column], boundary) for column, boundary in enumerate(placed.boundaries)
        ]
        if dump.last is not None and placed.last is not None:
            columns.append(("the last state", dump.last, target.num_layers if placed.last == "pre" else None))
        for what, state, boundary in columns:
            distances = {b: _distance(state, mine) for b, mine in known.items()}
            distances[-1] = _distance(state, after)
            nearest = min(distances, key=distances.__getitem__)
            own = distances[-1 if boundary is None else boundary]
            if distances[nearest] > FAR:
                raise DriftscopeError(
                    f"{dump.name}: {what} is no boundary of target {target.name}; the nearest, {_name(nearest)}, is at a"
                    f" relative distance of {distances[nearest]:.2g}: another target, or another position"
                )
            if own > 2 * distances[nearest]:
                raise DriftscopeError(
                    f"{dump.name}: {what} is declared as {_name(-1 if boundary is None else boundary)}, but is"
                    f" {_name(nearest)} (relative distances {own:.2g} and {distances[nearest]:.2g}); --layers, --ids and"
                    " --last say what it is"
                )
            worst = max(worst, own)
    return [f"every state is the boundary it is declared as, by the whole target: relative distance up to {worst:.1g}"]


def _distance(state: torch.Tensor, mine: torch.Tensor) -> float:
    return float((state.float() - mine).norm() / mine.norm().clamp(min=1e-9))


def _name(boundary: int) -> str:
    return "the state after the final norm" if boundary < 0 else f"boundary {boundary}"
