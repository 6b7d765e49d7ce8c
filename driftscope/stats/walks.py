"""What is accepted from every anchor of a few texts, and the rounds that an engine with any number of draft tokens makes of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from driftscope.stats.acceptance import Ints, served_walk

Floats = NDArray[np.float64]
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True)
class PromptWalk:
    """One text. Anchor 0 is the first, P-1; anchor a drafts for the continuation's tokens from place a + 1 on."""

    prompt: str
    category: str
    new_tokens: int
    """Tokens of the continuation, the one that ends it included."""
    accepted: Ints
    """[anchor] drafted tokens that equal the text, up to the first that does not, or to the end of the text."""

    def ahead(self) -> Ints:
        """[anchor] tokens of the text that a draft can be compared with."""
        return self.new_tokens - 1 - np.arange(len(self.accepted))

    @property
    def digits(self) -> str:
        """One digit an anchor, base 36."""
        return "".join(_DIGITS[count] for count in self.accepted.tolist())

    @classmethod
    def of(cls, prompt: str, category: str, new_tokens: int, digits: str) -> PromptWalk:
        """The other way round. ValueError for what is no digit, or more than the text holds."""
        found = cls(prompt, category, new_tokens, np.array([int(digit, 36) for digit in digits], dtype=np.int64))
        if (found.accepted > found.ahead()).any():
            raise ValueError(f"prompt {prompt}: more accepted tokens than the text has")
        return found


@dataclass(frozen=True)
class Walks:
    """Of several texts, under one reading of the checkpoint."""

    depth: int
    """Steps that were drafted: no entry of `accepted` is larger."""
    prompts: tuple[PromptWalk, ...]

    @cached_property
    def categories(self) -> tuple[str, ...]:
        """Those that occur, in order."""
        return tuple(dict.fromkeys(prompt.category for prompt in self.prompts))

    def part(self, ids: Sequence[str]) -> Walks:
        """Those of some prompts."""
        wanted = set(ids)
        return Walks(self.depth, tuple(prompt for prompt in self.prompts if prompt.prompt in wanted))

    def counts(self, k: int) -> Floats:
        """[prompt, k + 1]: rounds, then those that accepted at least 1, 2, ... k tokens.

        Of rounds that have k tokens of text ahead of them, so that nothing is cut off.
        """
        rows = []
        for prompt in self.prompts:
            whole = prompt.accepted[prompt.ahead() >= k]
            rows.append(_survivors(served_walk(whole, k).accepted, k))
        return np.stack(rows) if rows else np.zeros((0, k + 1))

    def bounds(self, k: int, tokens: int | None) -> tuple[Floats, Floats]:
        """Least and most that an engine can count that writes the very texts, [prompt, k + 1] each.

        A round at the end of a text drafts past it, and what is accepted there nobody can see in the text. `tokens`: the
        engine's own limit of an answer, where it is shorter.
        """
        low, high = [], []
        for prompt in self.prompts:
            last = min(prompt.new_tokens, tokens or prompt.new_tokens)
            counts = prompt.accepted[: max(last - 1, 0)]
            walk = served_walk(counts, k)
            ahead = prompt.ahead()[walk.visited]
            low.append(_survivors(walk.accepted, k))
            # All that is there was accepted: the rest may have been too.
            high.append(_survivors(np.where(walk.accepted >= np.minimum(ahead, k), k, walk.accepted), k))
        return np.stack(low), np.stack(high)

    def length(self, k: int) -> float:
        """Accepted tokens of a round, without the bonus token; NaN without a round."""
        total = self.counts(k).sum(0)
        return float(total[1:].sum() / total[0]) if len(total) and total[0] else float("nan")


def _survivors(accepted: Ints, k: int) -> Floats:
    return np.array([len(accepted), *((accepted >= size).sum() for size in range(1, k + 1))], dtype=np.float64)
