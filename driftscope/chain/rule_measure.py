"""What every rule of verification makes of the steps of text-fed chains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int
from torch import Tensor

from driftscope.chain.prompt_chains import Subject
from driftscope.chain.verification import distribution, step_acceptance
from driftscope.chain.verification_rules import Sampling, SamplingPair
from driftscope.drafter.argmax import largest

ROWS_AT_ONCE = 64


@dataclass
class RuleMeasure:
    """Callable for observe(), reading `logits`: per pair of samplings `PAIR/acceptance/RULE` [anchor], and what joint chances are
    made of: `PAIR/p` and `PAIR/q`, both of the text's token, and `PAIR/likeliest`, whether it is the draft's likeliest.

    The anchors follow each other. q is 0 outside the draft vocabulary.
    """

    subject: Subject
    pairs: Sequence[SamplingPair]
    depth: int
    p: dict[Sampling, tuple[Tensor, Tensor]] = field(default_factory=dict, init=False, repr=False)
    """By the target's sampling: over the draft vocabulary [row, draft], and of the text's token [row]; row i is at the position
    behind the first anchor + i."""

    def __post_init__(self) -> None:
        subject, drafter = self.subject, self.subject.pair.drafter
        self.wanted = drafter.target_ids
        self.token_ids = subject.text.token_ids
        self.draft_ids = torch.full((drafter.config.vocab_size,), -1, device=drafter.device)
        self.draft_ids[self.wanted] = torch.arange(len(self.wanted), device=drafter.device)
        self.first = int(subject.anchors[0]) if len(subject.anchors) else 0
        positions = torch.arange(self.first + 1, self.first + len(subject.anchors) + self.depth)
        for how in dict.fromkeys(pair.target for pair in self.pairs):
            parts = [self._target(how, part) for part in positions.split(ROWS_AT_ONCE)]
            self.p[how] = torch.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts])

    def _target(self, how: Sampling, positions: Int[Tensor, " row"]) -> tuple[Tensor, Tensor]:
        device = self.wanted.device
        scores = self.subject.pair.target.head(self.subject.capture.final[positions]).to(device)
        p = distribution(scores, how, self._before(positions.to(device)) if how.penalty is not None else None)
        return p[:, self.wanted], p.gather(-1, self.token_ids[positions.to(device) + 1][:, None])[:, 0]

    def _before(self, positions: Int[Tensor, " row"]) -> Int[Tensor, "row length"]:
        """The text up to each position; shorter ones repeat their last token."""
        places = torch.arange(int(positions.max()) + 1, device=positions.device)
        return self.token_ids[torch.minimum(places[None], positions[:, None])]

    def _draft(self, how: Sampling, logits: Float[Tensor, "anchor draft"], positions: Int[Tensor, " anchor"]) -> Tensor:
        if how.penalty is None:
            return distribution(logits, how)
        # A penalty is on ids of the target's vocabulary.
        wide = logits.new_full((len(logits), len(self.draft_ids)), float("-inf"), dtype=torch.float32)
        wide[:, self.wanted] = logits.float()
        return distribution(wide, how, self._before(positions))[:, self.wanted]

    def __call__(self, step: int, rows: slice, values: dict[str, Tensor]) -> dict[str, Tensor]:
        logits = values["logits"]
        positions = self.subject.anchors[rows] + step
        at = positions - self.first - 1
        text = self.token_ids[positions + 1]
        own = self.draft_ids[text]
        likeliest = own == largest(logits)
        drafts: dict[Sampling, Tensor] = {}
        found: dict[str, Tensor] = {}
        for pair in self.pairs:
            if pair.draft not in drafts:
                drafts[pair.draft] = self._draft(pair.draft, logits, positions)
            p, p_text = self.p[pair.target]
            q = drafts[pair.draft]
            for rule, chance in step_acceptance(p[at], q).items():
                found[f"{pair.name}/acceptance/{rule}"] = chance
            found[f"{pair.name}/acceptance/greedy"] = likeliest.float()
            found[f"{pair.name}/p"] = p_text[at]
            found[f"{pair.name}/q"] = torch.where(own >= 0, q.gather(-1, own.clamp(min=0)[:, None])[:, 0], 0.0)
            found[f"{pair.name}/likeliest"] = likeliest if pair.draft.penalty is None else own == q.argmax(-1)
        return found
