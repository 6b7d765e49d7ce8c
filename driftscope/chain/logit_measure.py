"""What the logits of a step say: the token that is drafted, and the rank and probability of the text's own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int
from torch import Tensor

from driftscope.drafter.argmax import largest

BLOCK = 1 << 17
"""Logits that a CPU works on at a time, so that they and two tensors like them stay in its second cache."""


@dataclass
class LogitMeasure:
    """Callable: logits of a step and the text's tokens -> quantities with one entry per anchor. Keeps the memory that it works
    in, for fresh memory of this size costs as much as the work."""

    target_ids: Int[Tensor, " draft_vocab"]
    vocab_size: int
    room: Tensor | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        self.draft_ids = torch.full((self.vocab_size,), -1, device=self.target_ids.device)
        """Draft id of every target id, -1 outside the draft vocabulary."""
        self.draft_ids[self.target_ids] = torch.arange(len(self.target_ids), device=self.target_ids.device)

    def __call__(self, logits: Float[Tensor, "anchor draft_vocab"], text: Int[Tensor, " anchor"]) -> dict[str, Tensor]:
        """`drafted`, `text`, `rank` (from 1; -1 for a token that cannot be drafted), `prob` (NaN there), `top_prob` and
        `logit_entropy` in nats. Of softmax's parts, p = exp(score - top) / total, only sums over the vocabulary are made:
        entropy = log total - sum(exp(score - top) (score - top)) / total."""
        best, draft = largest(logits), self.draft_ids[text]
        known = draft >= 0
        scores = logits.float()
        top = scores.gather(-1, best[:, None])
        own = scores.gather(-1, draft.clamp(min=0)[:, None])
        above, total, weighted = scores.new_empty((3, len(scores)))
        for part, (below, work) in self._blocks(scores):
            # Counted in floats: a sum over booleans converts each of them to int64 first.
            torch.sum(torch.gt(scores[part], own[part], out=work), -1, out=above[part])
            torch.sub(scores[part], top[part], out=below)
            torch.sum(torch.exp(below, out=work), -1, out=total[part])
            torch.sum(below.mul_(work), -1, out=weighted[part])
        prob = (own - top)[:, 0].exp() / total
        return {
            "drafted": self.target_ids[best],
            "text": text,
            "rank": torch.where(known, 1 + above.long(), -1),
            "prob": torch.where(known, prob, float("nan")),
            "top_prob": total.reciprocal(),
            "logit_entropy": total.log() - weighted / total,
        }

    def _blocks(self, scores: Tensor) -> Iterator[tuple[slice, Tensor]]:
        """Rows at a time, and two tensors like them to work in."""
        count, width = scores.shape
        rows = max(1, min(count, BLOCK // width)) if scores.device.type == "cpu" else count
        if self.room is None or self.room.shape[1] < rows:
            self.room = scores.new_empty((2, rows, width))
        for start in range(0, count, rows):
            part = slice(start, min(start + rows, count))
            yield part, self.room[:, : part.stop - start]
