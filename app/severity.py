"""How bad a run is, in a word and a colour: by what drift costs where that was measured, else by how far things move."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from driftscope.findings.cost import told
from driftscope.stats.intervals import Interval

COLOURS = {"none": "#009E73", "slight": "#E69F00", "clear": "#D55E00", "grave": "#A3210B", "unknown": "#8a929c"}
"""From harmless to grave; grey is no answer."""
CLEAR, GRAVE = 0.05, 0.2
"""Shares of the undrifted length from which on a cost is clear, and grave."""
_FAR_GROWTH, _FAR_MOVED = 2.0, 0.2
"""Growth, and displaced attention, that count as far where the cost is not known."""


@dataclass(frozen=True)
class Severity:
    """A level of COLOURS and the words of the table."""

    level: str
    words: str

    @property
    def colour(self) -> str:
        return COLOURS[self.level]


def severity(digest: Mapping[str, Any]) -> Severity:
    """Of the digest of a run (`driftscope.app.digest`)."""
    if "problem" in digest:
        return Severity("unknown", "cannot be read")
    cost = digest.get("cost")
    if cost:
        return _by_cost(cost)
    if digest["kind"] == "none":
        return Severity("none", "no drift found")
    if digest["kind"] != "drift":
        return Severity("unknown", "no verdict")
    growth, moved = (_mean(digest.get(name)) for name in ("growth", "displacement"))
    far = growth >= _FAR_GROWTH or moved >= _FAR_MOVED
    return Severity("clear" if far else "slight", f"moves{' far' if far else ' a little'}, cost not measured")


def _by_cost(cost: Mapping[str, Any]) -> Severity:
    found = Interval(**cost["cost"])
    share = _mean(cost.get("share"))
    words = {
        "costs": f"costs {share:.0%} of its length",
        "gains": "drift costs nothing",
        "nothing": "drift costs next to nothing",
        "unknown": "no cost can be told",
        "few": "too few prompts to tell a cost",
    }[told(found)]
    if told(found) == "costs":
        return Severity("grave" if share >= GRAVE else "clear" if share >= CLEAR else "slight", words)
    return Severity("none" if told(found) in ("gains", "nothing") else "unknown", words)


def _mean(figure: Mapping[str, Any] | None) -> float:
    value = (figure or {}).get("mean")
    return 0.0 if value is None else float(value)
