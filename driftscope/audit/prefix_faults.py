"""What an engine can get wrong about the rows that its chains see: named faults of the draft KV and of positions.

No checkpoint says any of it, so an audit of a checkpoint cannot see it either: what gives it away is what an engine accepts.
Each fault changes what the chains of a text start from, and `walked.predict` says what is accepted then.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from driftscope.drafter.attention import Prefix, Window

OFFSETS = (-2, -1, 1, 2)
ROWS_MISSING = 16
"""One block of a paged cache in the usual size."""
EVERY = 16
LARGEST_FLOAT8 = 448.0
"""Of e4m3. Engines without calibrated scales cut there (scale 1)."""


@dataclass(frozen=True)
class Seen:
    """What the chains of one text start from, beside the text itself."""

    prefix: list[Prefix]
    """Per layer, one entry per row of the text."""
    windows: list[Window]
    missing: int = 0
    """Rows at the start that are not there."""
    shift_first: int = 0
    """How far from its own position the row of step 1 stands."""
    shift_later: int = 0
    """The same of the steps from 2 on."""
    float8: bool = False
    """Whether the chain's own keys and values are kept in float8."""

    def mapped(self, change: Callable[[Tensor], Tensor]) -> Seen:
        """With `change` made to keys and values, [kv_head, row, dim], of every layer."""
        return replace(self, prefix=[Prefix(change(layer.keys), change(layer.values)) for layer in self.prefix])


Change = Callable[[Seen, Seen], Seen]
"""(what the chains should see, the same of another text) -> what they see."""


@dataclass(frozen=True)
class PrefixFault:
    """One named fault."""

    name: str
    words: str
    """What the engine does: the end of a sentence that begins with "the engine"."""
    signature: str
    """How acceptance by position differs from that of the sound walk."""
    look_at: str
    """Where to look in an engine."""
    change: Change
    holes: bool = False
    """Whether the last row of a round stays unwritten where every draft was accepted; rounds depend on the ones before then."""


def prefix_faults(
    *, offsets: tuple[int, ...] = OFFSETS, missing: int = ROWS_MISSING, every: int = EVERY
) -> tuple[PrefixFault, ...]:
    """All of them. missing: rows at the start that are not there. every: one row in so many is wrong."""
    return (
        *(positions_off(by) for by in offsets),
        *(positions_off(by, first=False) for by in offsets),
        rows_missing(missing),
        PREFIX_EMPTY,
        PREFIX_ZERO,
        PREFIX_STALE,
        rows_wrong(every),
        HOLES,
        FLOAT8,
    )


def positions_off(by: int, *, first: bool = True) -> PrefixFault:
    """A constant distance of a chain's positions to those of the rows before it; `first`: step 1 included."""
    from_two = "" if first else " from step 2"
    return PrefixFault(
        f"positions {by:+d}{from_two}",
        f"puts the rows of a chain{from_two} at positions that are {by:+d} off against those of the text",
        "position 1 lower, later ones by about as much" if first else "position 1 equal, lower from position 2 on",
        "the positions that the drafting steps are given, against those of the drafter's prefill",
        lambda seen, other: replace(seen, shift_first=by if first else 0, shift_later=by),
    )


def rows_missing(count: int) -> PrefixFault:
    """The first `count` rows of the text are not in the draft KV; the others stand where they should."""
    return PrefixFault(
        f"first {count} rows missing",
        f"has no draft keys and values for the first {count} rows of a text",
        "every position lower from position 1 on, most on short texts: the drafter's sink is among these rows",
        "prefix caching of the draft KV, chunked prefill, and where the drafter's prefill starts",
        lambda seen, other: replace(seen, missing=count),
    )


def rows_wrong(every: int) -> PrefixFault:
    """One row in `every` holds what stands `every` rows further, as a block that was written to the wrong place does."""

    def change(keys: Tensor) -> Tensor:
        index = torch.arange(keys.shape[1], device=keys.device)
        wrong = index % every == every - 1
        return keys[:, torch.where(wrong, (index + every) % len(index), index)]

    return PrefixFault(
        f"every {every}th row wrong",
        f"reads the keys and values of another row for one row in {every}",
        f"a little lower at every position; by round, periodic with {every} rows",
        "slot mapping and block size of the draft KV",
        lambda seen, other: seen.mapped(change),
    )


def through_float8(values: Tensor) -> Tensor:
    """Rounded to e4m3 with scale 1 and cut at its largest number, in the dtype that came in."""
    return values.clamp(-LARGEST_FLOAT8, LARGEST_FLOAT8).to(torch.float8_e4m3fn).to(values.dtype)


def _stale(seen: Seen, other: Seen) -> Seen:
    """Rows of another text at the same places; a shorter one is repeated."""
    prefix = []
    for own, left in zip(seen.prefix, other.prefix, strict=True):
        index = torch.arange(own.keys.shape[1], device=own.keys.device) % left.keys.shape[1]
        prefix.append(Prefix(left.keys[:, index], left.values[:, index]))
    return replace(seen, prefix=prefix)


PREFIX_EMPTY = PrefixFault(
    "prefix empty",
    "starts every round with an empty draft KV",
    "every position lower from position 1 on, whatever the length of the text",
    "whether prefill fills the draft KV, and whether it is kept between rounds",
    lambda seen, other: replace(seen, windows=[replace(window, fresh=True) for window in seen.windows]),
)
PREFIX_ZERO = PrefixFault(
    "prefix zero",
    "reads zeros where draft keys and values of the text should be",
    "every position lower from position 1 on; the longer the text, the more its zeros draw attention",
    "whether the draft KV is written where it is read: block table, slot mapping, layer index",
    lambda seen, other: seen.mapped(torch.zeros_like),
)
PREFIX_STALE = PrefixFault(
    "prefix stale",
    "reads the draft keys and values that another prompt left behind",
    "every position lower from position 1 on, more than with an empty draft KV where the other text misleads",
    "prefix caching of the draft KV, and block ids that it shares with the target",
    _stale,
)
HOLES = PrefixFault(
    "holes after full rounds",
    "leaves the last row of a round unwritten where every draft was accepted",
    "lower by more, the more rounds are accepted whole: growing along a text, and nothing where no round is",
    "whether the row of the last draft runs again with the target's features before the next round",
    lambda seen, other: seen,
    holes=True,
)
FLOAT8 = PrefixFault(
    "draft KV in float8",
    "keeps draft keys and values in float8 (e4m3) without scales",
    "a little lower at every position, or not at all",
    "kv_cache_dtype, and whether the drafter's scales are calibrated",
    lambda seen, other: replace(seen.mapped(through_float8), float8=True),
)
