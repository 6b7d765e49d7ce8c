"""Sampling acceptance: the chance that a token drawn from the drafter survives, sum over v of min(p(v), q(v))."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from driftscope.measure import StepMeasure
from driftscope.subject import Subject

ROWS_AT_ONCE = 256


@runtime_checkable
class HasHead(Protocol):
    """A Target, for what is needed of it here."""

    def head(self, hidden: Tensor, /) -> Tensor: ...


@dataclass
class WithSampling:
    """Callable for observe(): what StepMeasure returns, and `sampling` [anchor].

    p is the target's distribution at the position that a step predicts, q the drafter's, both at `temperature`; a token
    outside the draft vocabulary has q = 0. Meant for text-fed chains: p is that of the text. Leviathan et al., Fast Inference
    from Transformers via Speculative Decoding (2023), section 3.
    """

    inner: StepMeasure
    subject: Subject
    temperature: float
    held: tuple[slice, Tensor] | None = field(default=None, repr=False)

    def __call__(self, step: int, rows: slice, values: dict[str, Tensor]) -> dict[str, Tensor]:
        out = self.inner(step, rows, values)
        anchors = self.subject.anchors[rows]
        if self.held is None or self.held[0] != rows:
            positions = torch.arange(int(anchors[0]) + 1, int(anchors[-1]) + self.subject.settings.depth + 1)
            wanted = self.subject.pair.drafter.target_ids
            final = self.subject.capture.final[positions]
            self.held = rows, target_probs(self.subject.pair.target, final, wanted, self.temperature)
        place = anchors + step - (int(anchors[0]) + 1)
        q = (values["logits"].float() / self.temperature).softmax(-1)
        out["sampling"] = torch.minimum(self.held[1][place], q).sum(-1)
        return out


def with_sampling(subject: Subject, temperature: float) -> WithSampling:
    """For the chains of `subject` at its own depth."""
    return WithSampling(subject.measure(), subject, temperature)


def target_probs(
    target: HasHead, final: Float[Tensor, "row hidden"], wanted: Int[Tensor, " draft"], temperature: float
) -> Float[Tensor, "row draft"]:
    """The target's probabilities of the tokens `wanted`, on their device, from its post-final-norm states."""
    parts = []
    for part in final.split(ROWS_AT_ONCE):
        scores = target.head(part).to(wanted.device).float() / temperature
        parts.append((scores[:, wanted] - scores.logsumexp(-1, keepdim=True)).exp())
    return torch.cat(parts)
