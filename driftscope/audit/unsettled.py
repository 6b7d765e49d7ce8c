"""What no file says and the measurement cannot settle either."""

from __future__ import annotations

from collections.abc import Sequence

from driftscope.audit.report import Row
from driftscope.checkpoints.checkpoint import Checkpoint

_MORE = {
    "aux_boundaries": "more prompts",
    "carry": "more prompts, or more of each",
    "rope.theta": "longer prompts",
}
"""Switch -> what tells its values apart. Others make no difference that more texts would show, or are read off the weights."""


def unsettled(checkpoint: Checkpoint, rows: Sequence[Row]) -> tuple[str, ...]:
    """One line for every switch that no file says and of which another value does as well, with what settles it.

    rows: of the round that changed nothing more. Trainers that write a config without rope_theta do train with 10000, so that
    is settled where there is a config; a scaling is not, for it is left out as often as it is meant.
    """
    lines = []
    for switch in dict.fromkeys(row.switch for row in rows):
        alike = [row for row in rows if (row.switch, row.status) == (switch, "indistinguishable")]
        alike = [row for row in alike if _plausible(row)]
        if alike and _silent(checkpoint, switch):
            lines.append(_line(switch, alike))
    return tuple(lines)


def _silent(checkpoint: Checkpoint, switch: str) -> bool:
    """Whether the value is a default that nothing in the files says."""
    origin = checkpoint.config.origins.get(switch)
    if origin is None or origin.source != "default":
        return False
    return switch != "rope.theta" or not checkpoint.raw_config


def _plausible(row: Row) -> bool:
    """Whether a value is one that a trainer takes of itself: the target's rope, another carry, layers one up or down."""
    if row.switch in ("rope.theta", "rope.scaling"):
        return "the target's" in row.alternative
    return row.switch in _MORE and not row.searched and "order" not in row.alternative


def _line(switch: str, alike: Sequence[Row]) -> str:
    others = [row.alternative for row in alike]
    listed = ", ".join(others[:-1]) + (" and " if others[:-1] else "") + others[-1]
    flags = [row.flag for row in alike if row.flag]
    how = f"; {' or '.join(flags)} if it was trained so" if flags else ""
    more = alike[0].settled_by or _MORE[switch]
    do = "does" if len(others) == 1 else "do"
    return (
        f"{switch}: no file says it, {alike[0].declared} is assumed, and {listed} {do} as well on these texts{how};"
        f" {more} settle it"
    )
