"""What the ends of a target tell about stored states: which one is the embedding, which one predicts the text, and at which
position. Layer ids and conventions are claims; these are tests of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from driftscope.drafter.argmax import largest
from driftscope.errors import DriftscopeError
from driftscope.from_engines.answers import Answer
from driftscope.from_engines.formats import Dump
from driftscope.from_engines.placing import Placed
from driftscope.target.ends import TargetEnds

LAGS = (-2, -1, 0, 1, 2)
CLEAR = 0.1
"""How much more of a text one reading must predict than another to be believed against what was declared."""
CONFIRMED = 0.95
"""Share of a greedy text that its own final states predict, engines and precisions apart."""
_TEXTS, _ROWS = 4, 64
_SAME = 2.0**-6
"""Relative L2 distance of two states that are one, in bfloat16."""


@dataclass(frozen=True)
class Reading:
    """One way to read a state as the final one."""

    column: int | None
    """Of the stack; None is the state stored beside it."""
    kind: Literal["pre", "post"]
    agreement: tuple[float, ...]
    """Share of the tokens at each of LAGS that it predicts; 0 is the next token."""

    @property
    def now(self) -> float:
        return self.agreement[LAGS.index(0)]


def check(ends: TargetEnds, texts: Sequence[tuple[Dump, Answer]], placed: Placed) -> tuple[Placed, list[str]]:
    """The placement with the final state settled, and what was seen, a line each.

    Raises DriftscopeError for states that the placement cannot be right about: an embedding elsewhere than at boundary 0,
    a final state at another id, or states at other positions than their tokens.
    """
    lines = []
    chosen = texts[:: max(1, len(texts) // _TEXTS)][:_TEXTS]
    embedded = _check_embedding(ends, chosen, placed)
    if embedded:
        lines.append(embedded)
    readings = _readings(ends, chosen, placed)
    own = [reading for reading in readings if reading.column == placed.column] if placed.last is not None else []
    _check_positions(own, chosen[0][0].name)
    best = max(readings, key=lambda reading: reading.now)
    declared = max((r for r in own if placed.last in (r.kind, "either")), key=lambda reading: reading.now, default=None)
    if best.now >= CONFIRMED and not (declared and declared.now > best.now - CLEAR):
        if best in own:
            lines.append(
                f"the final state is stored {_WHEN[best.kind]} the final norm, not {_WHEN[placed.last]} it: so it predicts"
                f" {best.now:.0%} of the text, and less as declared"
            )
            return placed.with_last(best.kind), lines
        raise DriftscopeError(_misplaced(ends, chosen[0][0].name, best, placed))
    if declared is None:
        lines.append("no final state in the dump: nothing confirms the text, and acceptance cannot be measured")
        return placed, lines
    settled = placed.with_last(declared.kind)
    seen = f"the final state, stored {_WHEN[declared.kind]} the final norm, predicts {declared.now:.0%} of the text"
    if declared.now < CONFIRMED:
        seen += ": the text is not the target's greedy one, or the state is of another layer or target"
    return settled, [*lines, seen]


def check_tokens(ends: TargetEnds, dump: Dump) -> None:
    """Raises DriftscopeError for tokens that the target does not have."""
    low, high = int(dump.token_ids.min()), int(dump.token_ids.max())
    if low < 0 or high >= ends.vocab_size:
        raise DriftscopeError(
            f"{dump.name}: token ids {low} .. {high}, but target {ends.name} has {ends.vocab_size}: another target?"
        )


def _check_positions(own: Sequence[Reading], name: str) -> None:
    """Of the final state alone: an early one may well name its own token."""
    best = max(own, key=lambda reading: max(reading.agreement), default=None)
    if best is None:
        return
    peak = max(best.agreement)
    lag = LAGS[best.agreement.index(peak)]
    if lag and peak > best.now + CLEAR and peak > 2 * best.now:
        raise DriftscopeError(
            f"{name}: its states stand {abs(lag)} position{'s' if abs(lag) > 1 else ''}"
            f" {'before' if lag > 0 else 'behind'} their tokens: the final one predicts {peak:.0%} of the tokens there and"
            f" {best.now:.0%} where it should; a dump for training may be shifted already"
        )


_WHEN = {"pre": "before", "post": "after", "either": "on either side of", None: "beside"}


def _misplaced(ends: TargetEnds, name: str, best: Reading, placed: Placed) -> str:
    n = ends.num_layers
    if best.column is None or best.kind == "post":
        return f"{name}: state {best.column} is the one after the final norm; say so with --last post and its id as {n}"
    declared = placed.boundaries[best.column]
    off = n - declared if declared is not None else 0
    fix = " (--ids layer-output?)" if off == 1 else ""
    return (
        f"{name}: its state {best.column} is declared as boundary {declared}, but predicts {best.now:.0%} of the text as"
        f" boundary {n} does: the ids are {off} too low{fix}; --layers names them"
    )


def _check_embedding(ends: TargetEnds, texts: Sequence[tuple[Dump, Answer]], placed: Placed) -> str | None:
    dump, _ = texts[0]
    embedding = ends.embedded(dump.token_ids[:_ROWS]).float().cpu()
    for column, boundary in enumerate(placed.boundaries):
        state = dump.states[:_ROWS, column].float()
        distance = float((state - embedding).norm() / embedding.norm())
        if boundary == 0 and distance > _SAME:
            raise DriftscopeError(
                f"{dump.name}: state {column} is declared as boundary 0, but is not the target's embedding of its tokens"
                f" (relative distance {distance:.2g}); another target, or ids that are layer outputs (--ids layer-output)"
            )
        if boundary != 0 and distance <= _SAME:
            raise DriftscopeError(
                f"{dump.name}: state {column} is the embedding, boundary 0, but is declared as boundary {boundary}: the ids"
                f" are {boundary} too high{' (--ids boundary?)' if boundary == 1 else ''}; --layers names them"
            )
    return "boundary 0 is the target's embedding of the tokens" if 0 in placed.boundaries else None


def _readings(ends: TargetEnds, texts: Sequence[tuple[Dump, Answer]], placed: Placed) -> list[Reading]:
    columns: list[int | None] = list(range(len(placed.boundaries)))
    if texts[0][0].last is not None:
        columns.append(None)
    found = []
    for column in columns:
        for kind in ("pre", "post"):
            shares = [_agreement(ends, dump, answer, column, kind) for dump, answer in texts]
            found.append(Reading(column, kind, tuple(torch.stack(shares).nanmean(0).tolist())))
    return found


def _agreement(ends: TargetEnds, dump: Dump, answer: Answer, column: int | None, kind: str) -> Float[Tensor, " lag"]:
    rows = torch.arange(answer.start - 1, min(answer.stop - 1, answer.start - 1 + _ROWS))
    state = dump.last if column is None else dump.states[:, column]
    assert state is not None
    said = predicted(ends, state[rows], kind)
    shares = []
    for lag in LAGS:
        place = rows + 1 + lag
        known = (place >= 0) & (place < len(dump.token_ids))
        same = said[known] == dump.token_ids[place[known]]
        shares.append(same.float().mean())
    return torch.stack(shares)


def predicted(ends: TargetEnds, state: Float[Tensor, "T H"], kind: str) -> Int[Tensor, " T"]:
    """The most probable next token of final states stored before (`pre`) or after (`post`) the norm, on the CPU."""
    final = ends.normed(state) if kind == "pre" else state
    return largest(ends.head(final)).cpu()
