"""From a stored text to a capture."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from driftscope.captures.capture import Capture
from driftscope.errors import DriftscopeError
from driftscope.from_engines.answers import Answer
from driftscope.from_engines.formats import Dump
from driftscope.from_engines.placing import Placed
from driftscope.target.ends import TargetEnds
from driftscope.target.loops import loop_mask

_HEAD_ROWS = 256
_TIE = 2.0**-6
"""Share of the largest logit within which an engine in bfloat16 may have chosen another token."""
_STRAY = 0.02
"""Share of a greedy answer that may lie outside of near ties."""


@dataclass(frozen=True)
class Made:
    """A capture, whether its final states are there, and the share of its answer that they predict."""

    record: Capture
    final: bool
    confirmed: float | None


def convert(ends: TargetEnds, dump: Dump, answer: Answer, placed: Placed, *, name: str, category: str) -> Made:
    """The capture of one text. Raises DriftscopeError for states that are not finite."""
    rows = slice(0, answer.stop)
    token_ids = dump.token_ids[rows].contiguous()
    # Still in the file: each is copied when it is stored.
    boundaries = {b: dump.states[rows, column] for column, b in enumerate(placed.boundaries) if b is not None}
    final = _final(ends, dump, placed, rows)
    for what, state in (*((f"boundary {b}", s) for b, s in boundaries.items()), ("the final state", final)):
        if state is not None and not all(part.isfinite().all() for part in state.split(_HEAD_ROWS)):
            raise DriftscopeError(f"{dump.name}: {what} holds values that are not finite; make the dump again")
    length, start = len(token_ids), answer.start - 1
    rms = torch.full((ends.num_layers + 1, length), torch.nan)
    for b, state in boundaries.items():
        rms[b] = torch.cat([part.float().square().mean(-1).sqrt() for part in state.split(_HEAD_ROWS)])
    near_tie = torch.zeros(length, dtype=torch.bool)
    confirmed, greedy = None, False
    if final is not None:
        differs, astray = _against_text(ends, final[start:-1], token_ids[start + 1 :])
        confirmed = 1.0 - float(differs.float().mean())
        greedy = int(astray.sum()) <= max(1, int(_STRAY * len(astray)))
        # In a text that is not the target's own, another token says nothing of ties.
        near_tie[start:-1] = differs & greedy
    width = ends.hidden_size
    record = Capture(
        prompt_id=name,
        category=category,
        token_ids=token_ids,
        prompt_length=answer.start,
        final=torch.full((1, 1), torch.nan).expand(length, width) if final is None else final,
        boundaries=dict(sorted(boundaries.items())),
        rms=rms,
        near_tie=near_tie,
        loop=torch.from_numpy(loop_mask(token_ids.numpy(), answer.start)),
        stopped=int(token_ids[-1]) in ends.eos_ids,
        greedy=greedy,
    )
    return Made(record, final is not None, confirmed)


def _final(ends: TargetEnds, dump: Dump, placed: Placed, rows: slice) -> Tensor | None:
    if placed.last is None:
        return None
    state = dump.last if placed.column is None else dump.states[:, placed.column]
    if state is None:
        return None
    state = state[rows].contiguous()
    return torch.cat([ends.normed(part).cpu() for part in state.split(_HEAD_ROWS)]) if placed.last == "pre" else state


def _against_text(ends: TargetEnds, final: Tensor, text: Tensor) -> tuple[Tensor, Tensor]:
    """Bool[row]: the most probable next token is another than the text's; and is so by more than a near tie."""
    differs, astray = [], []
    for part, tokens in zip(final.split(_HEAD_ROWS), text.split(_HEAD_ROWS), strict=True):
        logits = ends.head(part).float().cpu()
        top, best = logits.max(-1)
        gap = top - logits.gather(-1, tokens[:, None])[:, 0]
        differs.append(best != tokens)
        astray.append((best != tokens) & (gap > _TIE * logits.abs().amax(-1)))
    return torch.cat(differs), torch.cat(astray)
