"""States that no forward pass can have made: zero, constant, not finite, copied, or wrong in a pattern. Named before a run.

A causal model gives two rows the same state only where they read the same tokens, and no row a state of zeros. Whatever breaks
that was lost, mixed up or never written on the way from the engine to the drafter.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from driftscope.captures.capture import Capture
from driftscope.errors import DriftscopeError

_PROBED = 16
"""Values of a row that stand for it where rows are looked for that are the same."""
_EARLY = 4
"""Positions that may be a sink, whose state hardly depends on its token."""
_ROWS = 256
_PERIODS = range(2, 129)
_HITS, _STRAY = 4, 0.02
"""Rows of a class that must be out of line for a pattern, and the share of the other rows that may be."""
_FAR = 6.0
"""Scaled median absolute deviations beyond which a row is out of line with the others."""
_SPREAD = 0.05
"""Least deviation of a cosine that is told."""


def check_states(captures: Iterable[Capture]) -> None:
    """Raise DriftscopeError, in one line, for captures with states that no forward pass can have made."""
    checks = StateChecks()
    for record in captures:
        checks.add(record)
    checks.finish()


@dataclass
class StateChecks:
    """Takes in one capture after another; `finish` knows what takes all of them to see."""

    seen: dict[int, dict[bytes, tuple[str, int, int]]] = field(default_factory=lambda: defaultdict(dict))
    """Boundary -> key of a row -> its prompt, position and token."""
    low: dict[int, Tensor] = field(default_factory=dict)
    high: dict[int, Tensor] = field(default_factory=dict)
    """Boundary (-1: the final state) -> extremes of every feature over all rows."""
    shared: dict[tuple[int, int], list[int]] = field(default_factory=lambda: defaultdict(lambda: [0, 0]))
    """Pair of boundaries -> rows that are the same in both, and rows."""
    strays: list[tuple[str, np.ndarray]] = field(default_factory=list)
    """Per prompt, Bool[T]: rows out of line."""

    def add(self, record: Capture) -> None:
        """Look at one capture. Raises DriftscopeError for what it alone shows."""
        keys = {b: _keys(state) for b, state in record.boundaries.items()}
        for b, state in record.boundaries.items():
            self._rows(record, b, state)
            self._extremes(b, state)
            if b > 0:
                self._copies(record, b, keys[b])
        if bool(record.final[-1].isfinite().all()):
            self._extremes(-1, record.final)
        held = sorted(keys)
        for place, b in enumerate(held):
            for other in held[place + 1 :]:
                same = sum(mine == theirs for mine, theirs in zip(keys[b], keys[other], strict=True))
                self.shared[b, other][0] += same
                self.shared[b, other][1] += record.length
        self.strays.append((record.prompt_id, _out_of_line(record)))

    def finish(self) -> None:
        """Raises DriftscopeError for what all captures together show."""
        for (b, other), (same, rows) in self.shared.items():
            if same > rows // 2:
                raise DriftscopeError(
                    f"boundaries {b} and {other} hold the same states in {same:,} of {rows:,} rows: one of them was stored"
                    f" twice; {_AGAIN}"
                )
        self._columns()
        self._pattern()

    def _rows(self, record: Capture, b: int, state: Tensor) -> None:
        parts = state.split(_ROWS)
        finite = torch.cat([part.isfinite().all(-1) for part in parts])
        low, high = (torch.cat([getattr(part, name)(-1) for part in parts]) for name in ("amin", "amax"))
        for bad, what in (
            (~finite, "not finite"),
            ((low == 0) & (high == 0), "zero"),
            (low == high, "constant"),
        ):
            if bool(bad.any()):
                rows = torch.nonzero(bad)[:, 0].tolist()
                every = "; the drafter would read nothing of it: its share of the fused input is 0"
                raise DriftscopeError(
                    f"text {record.prompt_id}: boundary {b} is {what} in {_told(rows, record.length)}"
                    f"{every if what == 'zero' and len(rows) == record.length else ''}; {_AGAIN}"
                )

    def _extremes(self, b: int, state: Tensor) -> None:
        low, high = state.amin(0), state.amax(0)
        self.low[b] = torch.minimum(self.low[b], low) if b in self.low else low
        self.high[b] = torch.maximum(self.high[b], high) if b in self.high else high

    def _copies(self, record: Capture, b: int, keys: Sequence[bytes]) -> None:
        """Rows that are the same although they stand for different tokens."""
        copies: list[tuple[int, tuple[str, int, int]]] = []
        tokens = record.token_ids.tolist()
        for position, (key, token) in enumerate(zip(keys, tokens, strict=True)):
            first = self.seen[b].setdefault(key, (record.prompt_id, position, token))
            if first[2] != token and position >= _EARLY:
                copies.append((position, first))
        if copies:
            position, (prompt, place, _) = copies[0]
            of = f"row {place}" if prompt == record.prompt_id else f"row {place} of text {prompt}"
            raise DriftscopeError(
                f"text {record.prompt_id}: boundary {b} has rows that are copies of others with another token, in"
                f" {_told([p for p, _ in copies], record.length)}; row {position} is {of}; {_AGAIN}"
            )

    def _columns(self) -> None:
        still = {b: self.low[b] == self.high[b] for b in self.low}
        alive = torch.stack([~dead for dead in still.values()]).any(0) if still else torch.zeros(0)
        for b, dead in still.items():
            columns = torch.nonzero(dead & alive)[:, 0].tolist()
            if columns:
                where = "the final state" if b < 0 else f"boundary {b}"
                raise DriftscopeError(
                    f"{where} has the same value at every position in {_told(columns, len(dead), 'feature')}, which"
                    f" others have not; {_AGAIN}"
                )

    def _pattern(self) -> None:
        """Rows out of line at every n-th position."""
        if not self.strays:
            return
        positions = np.concatenate([np.arange(len(rows)) for _, rows in self.strays])
        stray = np.concatenate([rows for _, rows in self.strays])
        usable = positions >= _EARLY
        positions, stray = positions[usable], stray[usable]
        if stray.sum() < _HITS:
            return
        for period in _PERIODS:
            classes = positions % period
            hits, sizes = (np.bincount(classes, weights=w, minlength=period) for w in (stray, np.ones(len(stray))))
            worst = int(hits.argmax())
            others = (hits.sum() - hits[worst]) / max(1.0, sizes.sum() - sizes[worst])
            if hits[worst] >= max(_HITS, 0.9 * sizes[worst]) and others <= _STRAY:
                raise DriftscopeError(
                    f"every {period}th row, from row {worst} on, has features that do not fit together ({int(hits[worst])} of"
                    f" {int(sizes[worst])} such rows, {others:.1%} of the others): written by another pass; {_AGAIN}"
                )


_AGAIN = "make the dump, or capture, again"


def _keys(state: Tensor) -> list[bytes]:
    """A few values of every row, as bytes."""
    stride = max(1, state.shape[1] // _PROBED)
    part = state[:, stride // 2 :: stride][:, :_PROBED].contiguous()
    width = part.shape[1] * part.element_size()
    flat = part.view(torch.uint8).numpy().tobytes()
    return [flat[start : start + width] for start in range(0, len(flat), width)]


def _out_of_line(record: Capture) -> np.ndarray:
    """Bool[T]: rows where neighbouring boundaries point elsewhere, or are of another size, than everywhere else."""
    held = [record.boundaries[b].float() for b in sorted(record.boundaries)]
    found = np.zeros(record.length, bool)
    for state in held:
        found |= _far(torch.linalg.vector_norm(state, dim=-1).log().numpy(), 0.3)
    for one, other in pairwise(held):
        found |= _far(torch.nn.functional.cosine_similarity(one, other, dim=-1).numpy(), _SPREAD)
    return found


def _far(values: np.ndarray, least: float) -> np.ndarray:
    middle = np.median(values)
    deviation = max(1.4826 * float(np.median(abs(values - middle))), least / _FAR)
    return np.asarray(abs(values - middle) > _FAR * deviation)


def _told(numbers: Sequence[int], of: int, what: str = "row") -> str:
    """`16 of 80 rows (0 to 15)`."""
    first, last = numbers[0], numbers[-1]
    whole = len(numbers) == last - first + 1
    listed = f"{first} to {last}" if whole and len(numbers) > 1 else ", ".join(map(str, numbers[:4]))
    more = "" if whole or len(numbers) <= 4 else ", ..."
    return f"{len(numbers):,} of {of:,} {what}s ({listed}{more})"
