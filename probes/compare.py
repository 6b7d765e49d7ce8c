"""What noisy chains are compared by: drafted tokens, and the distance of logits and carry from undisturbed chains."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from driftscope.chain.chain import Text
from driftscope.drafter.argmax import largest
from driftscope.drafter.model import Drafter


@dataclass
class Compare:
    """Callable for observe() that reads no more than `logits` and, for a comparison, `carry`.

    reference: what the undisturbed chains of the same rows returned with `keep`; then every step also has `kl`, KL(clean ||
    this) in nats over the draft vocabulary, `flip`, 1 where the top token differs, and, where a state is carried, `cos_clean`,
    the cosine of the carries.
    """

    drafter: Drafter
    text: Text
    anchors: Int[Tensor, " row"]
    reference: list[dict[str, Tensor]] | None = None
    keep: bool = False

    def __call__(self, step: int, rows: slice, values: dict[str, Tensor]) -> dict[str, Tensor]:
        logits = values["logits"]
        out = {
            "drafted": self.drafter.target_ids[largest(logits)],
            "text": self.text.token_ids[self.anchors[rows] + 1 + step],
        }
        if self.reference is None and not self.keep:
            return out
        log_probs = logits.float().log_softmax(-1)
        if self.reference is None:
            return {**out, "log_probs": log_probs, **{n: values[n].clone() for n in ("carry",) if n in values}}
        clean = {name: value[rows] for name, value in self.reference[step - 1].items()}
        compared = {
            **out,
            "kl": (clean["log_probs"].exp() * (clean["log_probs"] - log_probs)).sum(-1),
            "flip": (clean["drafted"] != out["drafted"]).float(),
        }
        if "carry" in values:
            cosine = torch.cosine_similarity(clean["carry"].float(), values["carry"].float(), dim=-1)
            compared["cos_clean"] = cosine
        return compared
