"""The two ends of the patched chains are known in advance: whether they draft what they must, to rounding."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from driftscope.drafter.argmax import largest
from driftscope.drafter.model import Drafter

NONE = -1
"""In place of a token: nothing is known in advance."""


class EndsError(RuntimeError):
    """Patched chains differ from the chains that they stand for: a fault of this program, not a measurement."""


def rounding(drafter: Drafter) -> float:
    """By how much of the largest logit two logits may differ that are equal but for rounding.

    The chains of an end compute the same numbers in products of other shapes, whose sums are added up in another order. Every
    product of width n rounds by sqrt(n) u, u the unit roundoff of float32, in which sums are kept, and its result by that of the
    drafter's dtype; a layer has four behind its attention, with two norms and two sums, then norm and head, rounded up to 8 and 4.
    Each of two logits may be off by it.
    Source: Higham and Mary, A New Approach to Probabilistic Rounding Error Analysis (2019), for the sqrt(n).
    """
    config, single = drafter.config, torch.finfo(torch.float32).eps / 2
    stored = max(torch.finfo(drafter.dtype).eps / 2, single)
    width = max(config.hidden_size, config.intermediate_size, config.num_heads * config.head_dim)
    return 2 * (8 * config.num_layers + 4) * (stored + width**0.5 * single)


@dataclass(frozen=True)
class Tokens:
    """Callable for observe(), reading `logits`: `top`, the draft id of every chain, and `lack`, by how much of the largest logit
    the token that is known in advance falls behind it; 0 where none is."""

    known: Int[Tensor, "step row"]
    """Draft ids, NONE where nothing is known."""

    def __call__(self, step: int, rows: slice, values: dict[str, Tensor]) -> dict[str, Tensor]:
        logits = values["logits"].float()
        top, known = largest(logits), self.known[step - 1, rows]
        best, expected = (logits.gather(-1, at[:, None])[:, 0] for at in (top, known.clamp(min=0)))
        lack = (best - expected) / logits.abs().amax(-1).clamp_min(torch.finfo(torch.float32).tiny)
        return {"top": top, "lack": lack.masked_fill(known == NONE, 0)}


def ties(
    lack: Float[Tensor, "anchor end step"], differs: Bool[Tensor, "anchor end step"], drafter: Drafter, what: str
) -> Bool[Tensor, "anchor step"]:
    """Where an end drafted another token than it must, and no more than rounding is between the two.

    Raises EndsError where more is.
    """
    worst, bound = float(lack.max()), rounding(drafter)
    if worst > bound:
        anchor, _, step = (int(place) for place in (lack == lack.max()).nonzero()[0])
        raise EndsError(
            f"{what} drafts another token at step {step + 1} from the anchor in place {anchor}: two logits that must be equal"
            f" differ by {worst:.1e} of the largest, rounding explains {bound:.1e}"
        )
    return differs.any(1)
