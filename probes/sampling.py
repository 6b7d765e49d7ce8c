"""Sampling acceptance: the chance that a token drawn from the drafter survives, sum over v of min(p(v), q(v))."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from driftscope.chain.measure import StepMeasure
from driftscope.chain.prompt_chains import Subject

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

    def __post_init__(self) -> None:
        drafter = self.subject.pair.drafter
        # Before the chains: in their loop nothing is read from the device or copied to it.
        self.first, self.wanted = self.subject.text.prompt_length - 1, drafter.target_ids
        self.final = self.subject.capture.final[self.first :].to(drafter.device)

    def __call__(self, step: int, rows: slice, values: dict[str, Tensor]) -> dict[str, Tensor]:
        out = self.inner(step, rows, values)
        if self.held is None or self.held[0] != rows:
            final = self.final[rows.start + 1 : rows.stop + self.subject.settings.depth]
            self.held = rows, target_probs(self.subject.pair.target, final, self.wanted, self.temperature)
        # Anchors follow each other, the first of them at P-1.
        p = self.held[1][step - 1 : step - 1 + rows.stop - rows.start]
        q = (values["logits"].float() / self.temperature).softmax(-1)
        out["sampling"] = torch.minimum(p, q).sum(-1)
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
