"""What is not audited, in one line."""

from __future__ import annotations

from driftscope.checkpoints.config import DrafterConfig
from driftscope.errors import CheckpointError


def check_audited(config: DrafterConfig) -> None:
    """Raise CheckpointError for a drafter of all steps at once: the hypotheses are about chains of steps."""
    if not config.carries:
        raise CheckpointError(
            "the audit flips the switches of a chain of steps, and this drafter drafts all steps at once; compare"
            " settings by hand: `driftscope probe` with --aux or --set, then `driftscope compare`"
        )
