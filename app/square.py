"""The four runs of carry x FC-norm, where the folder holds them: which they are, and what they say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from driftscope.app.library import Entry
from driftscope.compare import Comparison, compare
from driftscope.compare.captures import CompareError
from driftscope.compare.model import Compared
from driftscope.show.frames import Runs

CORNERS = (("pre", False), ("pre", True), ("post", False), ("post", True))
"""(carry, FC-norm), in the order of a comparison: neither, FC-norm, post-norm, both."""
_SHOWN = ("growth", "drift_cost", "displacement", "noise", "served")
"""Quantities of the card, in its order; `noise` is the one that the headline of the comparison speaks of."""
_BETTER = {
    ("up", "higher"): "better",
    ("down", "lower"): "better",
    ("up", "lower"): "worse",
    ("down", "higher"): "worse",
}
Square = dict[str, Any]


def corners(entries: Sequence[Entry], sound: Mapping[str, bool], chosen: Entry) -> list[Entry]:
    """The runs of the corners in the order of CORNERS; [] where some corner has none.

    All draft for one target on one set of prompts: those of `chosen` if it has all corners there, else those of the newest
    run that has. Of several runs of a corner it is `chosen`, else the newest, but a twin (`eagle3-cold` beside `eagle3`) only
    where nothing else stands there: its difference to the others is no switch's. Runs that are not `sound` are left out.
    """
    groups: dict[tuple[str, ...], dict[tuple[str, bool], list[Entry]]] = {}
    for entry in [chosen, *entries]:
        place = _place(entry)
        if place is not None and sound.get(entry.id, True):
            groups.setdefault(_texts(entry), {}).setdefault(place, []).append(entry)
    for found in groups.values():
        if len(found) == len(CORNERS):
            return [_first_of(found[corner]) for corner in CORNERS]
    return []


def _first_of(same: Sequence[Entry]) -> Entry:
    return next((entry for entry in same if not any(_twin(entry, other) for other in same)), same[0])


def _twin(entry: Entry, other: Entry) -> bool:
    """Whether a run is of another checkpoint and named after the run `other`."""
    assert entry.info is not None
    assert other.info is not None
    name, of = entry.folder.name, other.folder.name
    return name.startswith((f"{of}-", f"{of}_")) and entry.info.checkpoint.sha256 != other.info.checkpoint.sha256


def square(runs: Runs) -> Square:
    """What the four say together, ready for JSON; {"problem"} where they cannot be compared."""
    try:
        found = compare(runs)
    except CompareError as error:
        return {"problem": str(error)}
    if found.design.kind != "factorial":
        return {"problem": "these are not the four of carry x FC-norm"}
    held = [str(run.folder) for run in runs]
    return {
        "names": list(found.runs),
        "order": [held.index(folder) for folder in found.folders],
        "headline": found.headline,
        "prompts": found.prompts,
        "of": max(len(run.info.prompts) for run in runs),
        "depth": found.depth,
        "notes": list(found.notes),
        "quantities": [_told(part, found) for part in _parts(found)],
    }


def _parts(found: Comparison) -> list[Compared]:
    by_name = {part.quantity.name: part for part in found.compared}
    noisy = [part for part in found.compared if part.quantity.name.startswith("noise") and part.quantity.key]
    by_name["noise"] = noisy[0] if noisy else by_name.get("noise_0.5")  # type: ignore[assignment]
    return [by_name[name] for name in _SHOWN if by_name.get(name) is not None]


def _told(part: Compared, found: Comparison) -> dict[str, Any]:
    against = {name: effect.direction for name, effect in part.differences.items()}
    return {
        "name": part.quantity.name,
        "label": part.quantity.label,
        "short": part.quantity.short,
        "unit": part.quantity.unit,
        "better": part.quantity.better,
        "values": [part.values[name].to_dict() if name in part.values else None for name in found.runs],
        "judged": [_BETTER.get((against.get(name, ""), part.quantity.better), "") for name in found.runs],
        "sentence": part.sentence,
    }


def _place(entry: Entry) -> tuple[str, bool] | None:
    if entry.info is None:
        return None
    switches = entry.info.checkpoint.switches
    place = (str(switches.get("carry")), bool(switches.get("fc_norm")))
    return place if place in CORNERS else None


def _texts(entry: Entry) -> tuple[str, ...]:
    assert entry.info is not None
    return (entry.info.target.fingerprint, *(prompt.id for prompt in entry.info.prompts))
