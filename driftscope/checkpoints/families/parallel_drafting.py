"""Drafters that start every step from masks, not from the step before: the token that stands for an unknown one."""

from __future__ import annotations

import re

from driftscope.checkpoints.reading.board import Switchboard
from driftscope.errors import CheckpointError

TENSOR = "mask_hidden"
"""Of P-EAGLE: the features that stand for unknown ones, [1, 1, num_aux * target_hidden_size]."""
_ARCHITECTURE = re.compile(r"P-?[Ee]agle")


def parallel(board: Switchboard) -> str | None:
    """Why a checkpoint of an EAGLE-3 layout is P-EAGLE, or None."""
    if board.has(TENSOR):
        return TENSOR
    if board.raw.get("speculators_model_type") == "peagle":
        return "speculators_model_type is peagle"
    named = next((str(name) for name in board.raw.get("architectures") or () if _ARCHITECTURE.search(str(name))), None)
    return f"architecture {named}" if named else None


def resolve_mask_token(board: Switchboard, *keys: str) -> None:
    """Put mask_token_id from the first of these config keys that is there; one that nothing says is asked for."""
    found = board.raw_value(*keys)
    if found is None:
        if board.user("mask_token_id") is None:
            board.problems.append(
                f"{keys[0].rpartition('.')[2]} is not in the config: give --set mask_token_id=N, the token that stood for"
                " unknown ones in training"
            )
        return
    value, key = found
    size = board.get("vocab_size")
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < size:
        raise CheckpointError(
            f"config: {key} is {value!r}, expected a token of the target's vocabulary, 0 to {size - 1}"
        )
    board.put("mask_token_id", value, "config", key)
