"""How the switches of runs differ, and what that lets a difference be attributed to."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from driftscope.runs.run import Run

FACTORS = {"fc_norm": "FC-norm", "carry": "post-norm"}
_CORNERS = ((False, False), (True, False), (False, True), (True, True))
Kind = Literal["single", "factorial", "one switch", "both switches", "same switches", "several", "different kinds"]


@dataclass(frozen=True)
class Design:
    """What the runs are to each other. Cells are (FC-norm, post-norm)."""

    kind: Kind
    cells: tuple[tuple[bool, bool], ...]
    """One per run, in their order."""
    order: tuple[int, ...] = ()
    """Of a factorial: the runs that have neither, FC-norm, post-norm and both."""
    factor: str = ""
    """Of one switch: `fc_norm` or `carry`."""
    others: tuple[str, ...] = ()
    """Other switches that differ between the runs: what is found may be theirs."""
    at_once: tuple[int, ...] = ()
    """The runs whose drafter carries nothing: all steps are drafted at once."""
    groups: tuple[tuple[int, ...], ...] = ()
    """Of a factorial and of one switch: the runs of each cell, the cell without a switch before that with it."""
    notes: tuple[str, ...] = ()

    @property
    def seeds(self) -> int:
        """Trainings in the cell that has fewest; 1 where each cell is one checkpoint."""
        return min((len(group) for group in self.groups), default=1)

    @property
    def repeated(self) -> bool:
        """Whether some cell has several trainings."""
        return any(len(group) > 1 for group in self.groups)

    @property
    def cell_names(self) -> tuple[str, ...]:
        """Of the groups: `neither`, `FC-norm`, `post-norm`, `both`."""
        return tuple(_named(self.cells[group[0]]) for group in self.groups)


def design(runs: Sequence[Run]) -> Design:
    """Recognised from the switches in `run.json`."""
    switches = [run.info.checkpoint.switches for run in runs]
    cells = tuple((bool(part.get("fc_norm")), part.get("carry") == "post") for part in switches)
    others = tuple(_others(switches))
    notes = []
    at_once = tuple(place for place, part in enumerate(switches) if part.get("carry") == "none")
    if 0 < len(at_once) < len(runs):
        notes.append("a drafter of all steps at once carries nothing: what is measured of the carry is absent for it")
        notes.append(
            "excess and displacement of a block grow because it has masks where the baseline has features: compare them"
            " between blocks, not with a chain's"
        )
        return Design("different kinds", cells, others=others, at_once=at_once, notes=tuple(notes))
    if others:
        notes.append(f"the checkpoints also differ in {', '.join(others)}: what is found may be due to that")
    weights = [run.info.checkpoint.sha256 for run in runs]
    if len(set(weights)) < len(weights):
        notes.append(
            "runs of the same weights are among them: a switch flipped at inference is a control and does not show what"
            " training with it does"
        )
    kind, groups, factor = _kind(cells, weights)
    order = tuple(place for group in groups for place in group)
    found = Design(kind, cells, order, factor, others, at_once, groups)
    if found.repeated and found.seeds == 1:
        notes.append("a cell has one training only: of that cell the intervals do not cover seeds")
    return dataclasses.replace(found, notes=tuple(notes))


def _kind(
    cells: tuple[tuple[bool, bool], ...], weights: Sequence[str]
) -> tuple[Kind, tuple[tuple[int, ...], ...], str]:
    """Several runs of a cell are trainings of it with other seeds, if their weights differ."""
    if len(cells) == 1:
        return "single", (), ""
    held = [corner for corner in _CORNERS if corner in cells]
    groups = tuple(tuple(place for place, cell in enumerate(cells) if cell == corner) for corner in held)
    alone = len(cells) == len(held)
    if not alone and len(set(weights)) < len(weights):
        return ("same switches" if len(cells) == 2 else "several"), (), ""
    if len(held) == len(_CORNERS):
        return "factorial", groups, ""
    if len(held) == 2:
        changed = [name for name, one, two in zip(FACTORS, *held, strict=True) if one != two]
        if len(changed) == 1:
            return "one switch", groups, changed[0]
        return ("both switches" if alone else "several"), (), ""
    return ("same switches" if len(cells) == 2 else "several"), (), ""


def _named(cell: tuple[bool, bool]) -> str:
    held = [word for word, on in zip(FACTORS.values(), cell, strict=True) if on]
    return "both" if len(held) == 2 else held[0] if held else "neither"


def _others(switches: Sequence[dict[str, Any]]) -> list[str]:
    names = dict.fromkeys(name for part in switches for name in part if name not in FACTORS)
    return [name for name in names if any(part.get(name) != switches[0].get(name) for part in switches[1:])]
