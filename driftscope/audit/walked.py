"""Predicted acceptance: the rounds that an engine with a named fault would serve on a text, from the chains of all anchors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor, nn

from driftscope.audit.prefix_faults import PrefixFault, Seen, through_float8
from driftscope.chain.chain import Chain, ChainInputs, Text
from driftscope.chain.prefix import prefix_pass
from driftscope.drafter import Drafter
from driftscope.drafter.attention import Prefix
from driftscope.stats.acceptance import served_walk


@dataclass(frozen=True)
class Walk:
    """The rounds of one text."""

    anchors: NDArray[np.int64]
    """[round] where the round starts."""
    accepted: NDArray[np.int64]
    """[round] accepted drafts, without the bonus token."""


@dataclass(frozen=True)
class Predicted:
    """What the counters of an engine would show over these texts, with `depth` drafts a round."""

    fault: str
    """Its name; empty for the sound walk."""
    walks: tuple[Walk, ...]
    depth: int

    @property
    def drafts(self) -> int:
        """Rounds."""
        return sum(len(walk.accepted) for walk in self.walks)

    @property
    def per_position(self) -> tuple[int, ...]:
        """Rounds in which at least 1, 2, .. `depth` drafts were accepted: an engine's accepted tokens per position."""
        lengths = np.concatenate([walk.accepted for walk in self.walks])
        return tuple(int((lengths >= position).sum()) for position in range(1, self.depth + 1))

    @property
    def rates(self) -> tuple[float, ...]:
        """`per_position` over `drafts`. ValueError without a round."""
        if not self.drafts:
            raise ValueError("no text has an anchor with so many tokens after it")
        return tuple(count / self.drafts for count in self.per_position)


def seen_of(drafter: Drafter, text: Text) -> Seen:
    """What the chains of a text should see."""
    return Seen(prefix_pass(drafter, text, drafter.windows, sinks=(), horizon=1).prefix, drafter.windows)


@torch.no_grad()
def predict(
    drafter: Drafter,
    texts: Sequence[Text],
    fault: PrefixFault | None,
    *,
    depth: int,
    seen: Sequence[Seen] | None = None,
) -> Predicted:
    """Walk every text under a fault, or without one.

    The draft KV of a text that another one left behind is that of the text before it (of the last one for the first).
    seen: what `seen_of` gave for each text, which many faults can share.
    """
    seen = seen or [seen_of(drafter, text) for text in texts]
    walks = []
    for index, text in enumerate(texts):
        view = fault.change(seen[index], seen[index - 1]) if fault else seen[index]
        walk = _with_holes if fault and fault.holes else _at_once
        with _own_rows(drafter, view):
            walks.append(walk(drafter, text, view, depth))
    return Predicted(fault.name if fault else "", tuple(walks), depth)


def _at_once(drafter: Drafter, text: Text, seen: Seen, depth: int) -> Walk:
    """All anchors in one pass; the walk is read off."""
    anchors = _anchors(text, depth)
    rounds = served_walk(_accepted(drafter, text, seen, anchors, depth), depth)
    return Walk(anchors.cpu().numpy()[rounds.visited], rounds.accepted)


def _with_holes(drafter: Drafter, text: Text, seen: Seen, depth: int) -> Walk:
    """Round after round, since what a round leaves unwritten is missing in all later ones. A row that was never written
    holds zeros."""
    prefix = [Prefix(layer.keys.clone(), layer.values.clone()) for layer in seen.prefix]
    anchors = _anchors(text, depth)
    visited, lengths = [], []
    place, end = (int(anchors[0]), int(anchors[-1])) if len(anchors) else (0, -1)
    while place <= end:
        here = torch.tensor([place], device=anchors.device)
        count = int(_accepted(drafter, text, Seen(prefix, seen.windows), here, depth)[0])
        visited.append(place)
        lengths.append(count)
        if count == depth:
            # Steps 1 .. depth stood at place .. place + depth - 1; the last draft has had no row.
            for layer in prefix:
                layer.keys[:, place + depth] = 0
                layer.values[:, place + depth] = 0
        place += count + 1
    return Walk(np.array(visited, np.int64), np.array(lengths, np.int64))


def _anchors(text: Text, depth: int) -> Int[Tensor, " anchor"]:
    """Those of a text; none where it is too short for one."""
    enough = len(text.token_ids) - 1 - depth >= text.prompt_length
    return text.anchors(depth) if enough else torch.zeros(0, dtype=torch.long, device=text.token_ids.device)


def _accepted(
    drafter: Drafter, text: Text, seen: Seen, anchors: Int[Tensor, " anchor"], depth: int
) -> NDArray[np.int64]:
    """[anchor] drafts that equal the text, up to the first that does not."""
    if not len(anchors):
        return np.zeros(0, np.int64)
    ahead = torch.arange(1, depth + 1, device=anchors.device)
    shifts = torch.full((depth,), seen.shift_later, device=anchors.device)
    shifts[0] = seen.shift_first
    prefix = [Prefix(layer.keys[:, seen.missing :], layer.values[:, seen.missing :]) for layer in seen.prefix]
    inputs = ChainInputs(
        # Rows that are not there count for no place among the keys; positions stay those of the text.
        anchors=anchors - seen.missing,
        features=text.features[anchors],
        tokens=text.token_ids[anchors[:, None] + ahead],
        prefix=prefix,
        windows=seen.windows,
        depth=depth,
        feed="drafted",
        positions=anchors[:, None] + (ahead - 1) * drafter.config.position_increment + shifts,
    )
    drafted = Chain(drafter)(inputs)
    same = drafted == text.token_ids[anchors[:, None] + 1 + ahead]
    return same.long().cumprod(1).sum(1).cpu().numpy()


class _Float8(nn.Module):
    def forward(self, value: Tensor) -> Tensor:
        return through_float8(value)


@contextmanager
def _own_rows(drafter: Drafter, seen: Seen) -> Iterator[None]:
    """Keys and values of the chains go through float8 where the draft KV is kept so."""
    if not seen.float8:
        yield
        return
    places: list[tuple[Any, str, nn.Module]] = [
        (layer, name, getattr(layer, name)) for layer in drafter.layers for name in ("k", "v")
    ]
    try:
        for layer, name, _ in places:
            setattr(layer, name, _Float8())
        yield
    finally:
        for layer, name, site in places:
            setattr(layer, name, site)
