"""The counters of an engine: how many drafts, and how many of their tokens were accepted, by position."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from driftscope.errors import DriftscopeError

Engine = Literal["vllm", "sglang", ""]
NAMES: dict[Engine, str] = {"vllm": "vLLM", "sglang": "SGLang", "": "the engine"}
LONGEST = 64
"""Draft tokens of a round that no engine exceeds with a chain."""


class CountersError(DriftscopeError):
    """Counters that cannot be read or contradict themselves."""


@dataclass(frozen=True)
class Counters:
    """What was counted. Accepted tokens are drafted ones: the bonus token of a round is never among them."""

    engine: Engine
    source: str
    """What was read, in words: `Prometheus text`."""
    drafts: int
    """Rounds, that is verified drafts."""
    tokens: int
    """K: drafted tokens of a round."""
    accepted: int
    """Over all rounds."""
    per_position: tuple[int, ...] | None
    """Rounds that accepted at least 1, 2, ... K tokens; None where only a mean is known."""
    bonus: str
    """How the bonus token was told apart, in words."""
    requests: int | None = None
    generated: int | None = None
    """Tokens of all answers, where they are counted."""
    rounding: float = 0.0
    """By how much a count may be off, because the engine prints shares."""
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The engine as a person writes it."""
        return NAMES[self.engine]

    @property
    def length(self) -> float:
        """Accepted tokens of a round, without the bonus token."""
        return self.accepted / self.drafts

    @property
    def shares(self) -> tuple[float, ...] | None:
        """Of the rounds, those that accepted at least 1, 2, ... K tokens."""
        return None if self.per_position is None else tuple(count / self.drafts for count in self.per_position)

    def up_to(self, depth: int) -> Counters:
        """As if positions behind `depth` had not been counted."""
        if depth >= self.tokens or self.per_position is None:
            return self
        kept = self.per_position[:depth]
        return replace(self, tokens=depth, per_position=kept, accepted=sum(kept))

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "engine": self.engine or None,
            "source": self.source,
            "drafts": self.drafts,
            "speculative_tokens": self.tokens,
            "accepted": self.accepted,
            "per_position": None if self.per_position is None else list(self.per_position),
            "shares": None if self.shares is None else list(self.shares),
            "length": self.length,
            "bonus": self.bonus,
            "requests": self.requests,
            "notes": list(self.notes),
        }


def whole(where: str, name: str, value: Any, *, rounding: float = 0.0) -> int:
    """A count as an engine writes it, `871.0` too. CountersError where it is none.

    rounding: by how much a count that was made from shares may be off a whole number.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise CountersError(f"{where}: {name} is {str(value)[:40]!r}, expected a number")
    if not math.isfinite(value) or value < 0:
        raise CountersError(f"{where}: {name} is {value:g}, expected a count of 0 or more")
    if abs(value - round(value)) > max(rounding, 1e-6 * max(1.0, value)):
        raise CountersError(f"{where}: {name} is {value:g}, expected a whole number")
    return round(value)


def counted(
    where: str,
    *,
    engine: Engine,
    source: str,
    drafts: Any,
    per_position: Sequence[Any] | None,
    bonus: str,
    accepted: Any = None,
    drafted: Any = None,
    tokens: int | None = None,
    requests: int | None = None,
    generated: int | None = None,
    rounding: float = 0.0,
    notes: Sequence[str] = (),
) -> Counters:
    """Counters that fit together. CountersError says what contradicts what."""
    total = whole(where, "the number of drafts", drafts, rounding=rounding)
    if not total:
        raise CountersError(f"{where}: no draft was counted: serve some requests first, with speculative decoding on")
    positions = None
    if per_position is not None:
        positions = tuple(
            whole(where, f"accepted at position {place}", value, rounding=rounding)
            for place, value in enumerate(per_position, start=1)
        )
        _check_positions(where, positions, total, rounding)
    taken = sum(positions or ()) if accepted is None else whole(where, "accepted tokens", accepted, rounding=rounding)
    if positions is not None and abs(taken - sum(positions)) > max(0.0, rounding * len(positions)):
        raise CountersError(
            f"{where}: {taken} accepted tokens, but the positions add up to {sum(positions)}; the file is of"
            " two scrapes, or cut off"
        )
    size = len(positions) if positions is not None else tokens
    notes = [*notes]
    if size is None or not 1 <= size <= LONGEST:
        raise CountersError(f"{where}: {size} drafted tokens a round; expected 1 to {LONGEST} (--tokens says how many)")
    if drafted is not None:
        seen = whole(where, "drafted tokens", drafted, rounding=rounding)
        if seen < taken or seen > size * total + rounding * size:
            raise CountersError(
                f"{where}: {seen} drafted tokens in {total} drafts of at most {size}, {taken} of them accepted"
            )
        if seen < size * total * (1 - 1e-3):
            short = size * total - seen
            notes.append(
                f"{short:,} of {size * total:,} draft tokens were not drafted: some drafts were shorter than {size}"
            )
    if taken > size * total:
        raise CountersError(f"{where}: {taken} accepted tokens in {total} drafts of {size}")
    return Counters(engine, source, total, size, taken, positions, bonus, requests, generated, rounding, tuple(notes))


def _check_positions(where: str, positions: tuple[int, ...], drafts: int, rounding: float) -> None:
    if not 1 <= len(positions) <= LONGEST:
        raise CountersError(f"{where}: {len(positions)} positions, expected 1 to {LONGEST}")
    before = drafts
    for place, count in enumerate(positions, start=1):
        if count > before + 2 * rounding:
            what = f"{before} drafts" if place == 1 else f"{before} at position {place - 1}"
            raise CountersError(
                f"{where}: {count} accepted at position {place}, more than {what}; a position cannot be accepted without the one"
                " before it"
            )
        before = count


def from_histogram(where: str, histogram: Sequence[Any]) -> tuple[int, list[int]]:
    """Rounds, and those that accepted at least 1, 2, ... tokens, from `histogram[n]`: rounds that accepted exactly n."""
    if len(histogram) > LONGEST + 1:
        raise CountersError(f"{where}: {len(histogram)} bins of accepted tokens, expected at most {LONGEST + 1}")
    bins = [whole(where, f"rounds with {place} accepted tokens", value) for place, value in enumerate(histogram)]
    return sum(bins), [sum(bins[place:]) for place in range(1, len(bins))]
