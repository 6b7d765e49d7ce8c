"""What no file says and the measurement cannot settle either."""

from __future__ import annotations

from collections.abc import Sequence

from driftscope.audit.report import Row
from driftscope.checkpoints.checkpoint import Checkpoint


def unsettled(checkpoint: Checkpoint, rows: Sequence[Row]) -> tuple[str, ...]:
    """One line each, with the flag that settles it otherwise; `rows` are those of an audit."""
    assumed = checkpoint.config.origins.get("rope.theta")
    # Where there is a config, trainers without rope_theta do train with 10000.
    if checkpoint.raw_config or assumed is None or assumed.source != "default":
        return ()
    return tuple(
        f"no file says the rope base: {row.declared} is assumed, and {row.alternative} does as well on these texts;"
        f" --rope-theta {row.alternative.split()[0]} if it was trained with that (longer prompts tell more)"
        for row in rows
        if (row.round, row.switch, row.status) == (1, "rope.theta", "indistinguishable")
        and "the target's" in row.alternative
    )
