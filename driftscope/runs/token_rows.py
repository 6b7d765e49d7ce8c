"""Rows for people who read along: the text in pieces, and the keys that each step of a chain attends to most."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from torch import Tensor

from driftscope.chain.prompt_chains import Subject
from driftscope.drafter.block import BlockDrafter
from driftscope.runs.rows import to_numpy

Steps = Sequence[dict[str, Tensor]]


def token_rows(subject: Subject, steps: Steps) -> pd.DataFrame:
    """The `tokens` table: every token of the text at its position, then those that were only drafted, without one.

    A target without a tokenizer gives no rows.
    """
    tokenizer = getattr(subject.pair.target, "tokenizer", None)
    ids = [int(token) for token in subject.capture.token_ids] if tokenizer is not None else []
    drafted = {int(token) for step in to_numpy(steps, ("drafted",)) for token in step["drafted"].flat} if ids else set()
    only = sorted(drafted - set(ids))
    return pd.DataFrame(
        {
            "prompt": subject.capture.prompt_id,
            "position": pd.array([*range(len(ids)), *([pd.NA] * len(only))], dtype="Int32"),
            "id": np.array([*ids, *only], dtype=np.int32),
            "piece": pd.Series([*pieces(tokenizer, ids), *pieces(tokenizer, only)], dtype=object),
        }
    )


def pieces(tokenizer: Any, ids: Iterable[int]) -> list[str]:
    """The text of each token, with the space that stands before it."""
    known: dict[int, str] = {}
    return [known[token] if token in known else known.setdefault(token, _piece(tokenizer, token)) for token in ids]


def attended_rows(subject: Subject, variant: str, steps: Steps) -> pd.DataFrame:
    """The `attended` table of anchors outside loops: one row per anchor, step and heavy key, heaviest first."""
    kept = ~subject.looping
    anchors = subject.anchors.cpu().numpy()[kept]
    drafter = subject.pair.drafter
    frames = []
    for k, step in enumerate(to_numpy(steps, ("heavy_mass", "heavy_position", "heavy_own")), start=1):
        mass, place, own = (step[name][kept] for name in ("heavy_mass", "heavy_position", "heavy_own"))
        held = mass > 0
        anchor = np.broadcast_to(anchors[:, None], mass.shape)[held]
        position, is_own = place[held], own[held]
        frames.append(
            pd.DataFrame(
                {
                    "variant": variant,
                    "prompt": subject.capture.prompt_id,
                    "anchor": anchor,
                    "step": k,
                    "position": position,
                    "own": is_own,
                    "bucket": key_buckets(
                        position,
                        is_own,
                        anchor,
                        k,
                        subject.settings.sinks,
                        subject.capture.prompt_length,
                        block_row=drafter.row_of(k) if isinstance(drafter, BlockDrafter) else None,
                    ),
                    "mass": mass[held],
                }
            )
        )
    return pd.concat(frames, ignore_index=True)


def key_buckets(
    position: np.ndarray,
    own: np.ndarray,
    anchor: np.ndarray,
    step: int,
    sinks: Sequence[int],
    prompt_length: int,
    block_row: int | None = None,
) -> np.ndarray:
    """The bucket of each key of step `step`, as in `driftscope.chain.masses.bucket_masses`; of the row `block_row` of a block,
    as in `driftscope.chain.block_measure.block_masses`."""
    # The first row of a chain stands at the anchor, that of a block behind it.
    first, row = (0, step - 1) if block_row is None else (1, block_row)
    current = own & (position == anchor + first + row)
    drafted = own & (position > anchor + first)
    committed = own | (position >= prompt_length - 1)
    names = ["sink", "current", "drafted", "committed"]
    return np.select([np.isin(position, list(sinks)), current, drafted, committed], names, "prompt")


def _piece(tokenizer: Any, token: int) -> str:
    """Decoded behind itself: some tokenizers drop the space in front of the first word."""
    once, twice = (tokenizer.decode([token] * count, clean_up_tokenization_spaces=False) for count in (1, 2))
    return twice[len(once) :] if twice.startswith(once) and len(twice) > len(once) else once
