"""How the switches of runs differ, and what that lets a difference be attributed to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from driftscope.runs.run import Run

FACTORS = {"fc_norm": "FC-norm", "carry": "post-norm"}
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
    notes: tuple[str, ...] = ()


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
    if len({run.info.checkpoint.sha256 for run in runs}) < len(runs):
        notes.append(
            "runs of the same weights are among them: a switch flipped at inference is a control and does not show what"
            " training with it does"
        )
    kind, order, factor = _kind(cells)
    return Design(kind, cells, order, factor, others, at_once, tuple(notes))


def _kind(cells: tuple[tuple[bool, bool], ...]) -> tuple[Kind, tuple[int, ...], str]:
    if len(cells) == 1:
        return "single", (), ""
    corners = ((False, False), (True, False), (False, True), (True, True))
    if len(cells) == 4 and set(cells) == set(corners):
        return "factorial", tuple(cells.index(corner) for corner in corners), ""
    if len(cells) == 2:
        changed = [name for name, one, two in zip(FACTORS, *cells, strict=True) if one != two]
        if len(changed) == 1:
            return "one switch", (), changed[0]
        return ("both switches" if changed else "same switches"), (), ""
    return "several", (), ""


def _others(switches: Sequence[dict[str, Any]]) -> list[str]:
    names = dict.fromkeys(name for part in switches for name in part if name not in FACTORS)
    return [name for name in names if any(part.get(name) != switches[0].get(name) for part in switches[1:])]
