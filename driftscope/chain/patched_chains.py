"""Chains under every patch at once, and how a drafter does at the same places without drafting.

Fed with the text: a drafted token counts only where it and all before it equal the text, and up to there a chain that embeds its
own tokens embeds the text, so that accepted lengths are those of the drafted feed. What is recorded is then what the undisturbed
chain has at a place where it has drafted right so far. Fed with its own tokens, it would hand on rows of a wrong token behind its
first rejection, and a patch that lives longer would be charged for that token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from driftscope.chain.chain import ChainInputs, Feed, chain_inputs
from driftscope.chain.chunks import with_budget
from driftscope.chain.ends import NONE, Tokens, ties
from driftscope.chain.observe import Measure, observe
from driftscope.chain.patches import FACTORS, OWN, REAL, Patch, patches
from driftscope.chain.patching import Exchange, OwnRows, RealRows, Record, factor_sites, patched_sites
from driftscope.chain.prompt_chains import Subject

Steps = list[dict[str, Tensor]]


@dataclass(frozen=True)
class PatchedChains:
    """What the chains of one prompt drafted, by the names of the patches; of a drafter that carries nothing, `own` and `real`."""

    patches: tuple[str, ...]
    drafted: Int[Tensor, "patch anchor step"]
    """Target ids."""
    text: Int[Tensor, "anchor step"]
    rank: Int[Tensor, "anchor step"]
    """Of the text's token at the real row, 1 = top; 0 outside the draft vocabulary."""
    prob: Float[Tensor, "anchor step"]
    """The drafter's probability of it there; NaN outside the draft vocabulary."""
    tie: Bool[Tensor, "anchor step"]
    """An end drafted another token than the chain that it stands for, with no more than rounding between the two."""

    def right(self, patch: str) -> Bool[Tensor, "anchor step"]:
        """Whether the tokens drafted under a patch equal the text."""
        return self.drafted[self.patches.index(patch)] == self.text


def patched_chains(subject: Subject, depth: int, *, split_state: bool = False, feed: Feed = "text") -> PatchedChains:
    """Every patch (`driftscope.chain.patches.patches`) on all anchors of the subject.

    A drafter that carries nothing has no parts to patch: its rows without drafting are step 1 at the later anchors. Recorded rows
    and scores stay within the budget of the settings; results do not depend on the chunks. Raises EndsError where all own is not
    the undisturbed chain, or all real not step 1 at the later anchors.
    """
    if not subject.pair.config.carries:
        return with_budget(subject.budget, lambda budget: _at_once(subject, depth, budget), "blocks")
    wanted = patches(split_state)
    config, rows = subject.pair.config, subject.passed.prefix[0].keys.shape[1]
    row = config.num_layers * config.num_heads * rows * 4

    def run(budget: int) -> PatchedChains:
        # Half for what is recorded, a row of every step and a real one for each place ahead; half for the chains.
        half = budget // 2
        apart = 1 if subject.consecutive else depth
        size = max(1, (half // row - depth) // (depth + apart))
        return _joined([_Stretch(subject, part, depth, half).run(wanted, feed) for part in subject.anchors.split(size)])

    return with_budget(subject.budget, run, "recorded attention")


def _joined(parts: Sequence[PatchedChains]) -> PatchedChains:
    joined: dict[str, Any] = {
        name: torch.cat([getattr(part, name) for part in parts]) for name in ("text", "rank", "prob", "tie")
    }
    return replace(parts[0], drafted=torch.cat([part.drafted for part in parts], 1), **joined)


def _at_once(subject: Subject, depth: int, budget: int) -> PatchedChains:
    stretch = _Stretch(subject, subject.anchors, depth, budget)
    real = stretch.real(("logits",))
    known = torch.full((depth, len(stretch.anchors)), NONE, device=stretch.anchors.device)
    own = stretch.chains(stretch.anchors, depth, "drafted", Tokens(known))
    top = torch.stack([_over_steps(own, "top"), real["top"][stretch.ahead]])
    return stretch.chained((OWN, REAL), top, real, torch.zeros_like(stretch.ahead, dtype=torch.bool))


@dataclass
class _Stretch:
    """Anchors whose recorded rows are held at once."""

    subject: Subject
    anchors: Int[Tensor, " anchor"]
    depth: int
    budget: int

    def __post_init__(self) -> None:
        self.drafter, device = self.subject.pair.drafter, self.anchors.device
        steps = torch.arange(self.depth, device=device)
        # Anchors that stand less than `depth` apart share the rows ahead of them.
        self.later, self.ahead = torch.unique(self.anchors[:, None] + steps, return_inverse=True)
        """Anchors of the real rows, and the place among them of that of each anchor and step."""
        self.text = self.subject.text.token_ids[self.anchors[:, None] + 2 + steps]

    def run(self, wanted: Sequence[Patch], feed: Feed) -> PatchedChains:
        sites = (*patched_sites(self.drafter.config.num_layers), "logits")
        real = self.real(sites)
        record = Record(self.drafter, self.subject.text, self.anchors)
        own = self.chains(self.anchors, self.depth, feed, record, sites)
        own_top, real_top = _over_steps(own, "top"), real["top"][self.ahead]
        copies, names = len(wanted), tuple(patch.name for patch in wanted)
        known = torch.full((len(self.anchors), copies, self.depth), NONE, device=self.anchors.device)
        known[:, names.index(OWN)] = own_top
        # A real row stands for a chain that embeds the text so far.
        known[:, names.index(REAL)] = real_top if feed == "text" else real_top.where(self._alive(real_top), NONE)
        stack = self.anchors.repeat_interleave(copies)
        found = self.chains(
            stack,
            self.depth,
            feed,
            Tokens(known.flatten(0, 1).T),
            interventions=self._exchanges(wanted, OwnRows(own), RealRows(real, self.anchors, self.ahead)),
        )
        top = _over_steps(found, "top").view(known.shape)
        tie = self._ties(found, known, "a patched chain that stands for an undisturbed one", feed)
        if feed == "text":
            tie = tie | self._undisturbed(own_top)
        return self.chained(names, top.transpose(0, 1), real, tie)

    def real(self, sites: Sequence[str]) -> dict[str, Tensor]:
        """Step 1 of the chains at the later anchors."""
        return self.chains(self.later, 1, "text", Record(self.drafter, self.subject.text, self.later), sites)[0]

    def chains(
        self,
        anchors: Tensor,
        depth: int,
        feed: Feed,
        measure: Measure,
        sites: Sequence[str] = ("logits",),
        interventions: Sequence[Exchange] = (),
    ) -> Steps:
        subject = self.subject
        inputs: ChainInputs = chain_inputs(
            subject.text, subject.passed.prefix, subject.windows, anchors=anchors, depth=depth, feed=feed
        )
        return observe(
            subject.pair.drafter_nn, inputs, measure, sites=sites, interventions=interventions, budget=self.budget
        )

    def chained(self, names: tuple[str, ...], top: Tensor, real: dict[str, Tensor], tie: Tensor) -> PatchedChains:
        rank, prob = (real[name][self.ahead] for name in ("rank", "prob"))
        return PatchedChains(names, self.drafter.target_ids[top], self.text, rank, prob, tie)

    def _exchanges(self, wanted: Sequence[Patch], own: OwnRows, real: RealRows) -> list[Exchange]:
        found = []
        for factor in FACTORS:
            parts = [getattr(patch, factor) for patch in wanted]
            exchanged, resized = (
                torch.tensor([part == kind for part in parts], device=self.anchors.device) for kind in (REAL, "resized")
            )
            for place in factor_sites(factor, self.drafter.config.num_layers):
                found.append(Exchange(place, own, real, exchanged, resized if "resized" in parts else None))
        return found

    def _alive(self, top: Tensor) -> Tensor:
        """Whether all earlier tokens equal the text, [anchor, step]."""
        right = (self.drafter.target_ids[top] == self.text).long()
        return torch.cat([torch.ones_like(right[:, :1]), right[:, :-1]], 1).cumprod(1) > 0

    def _undisturbed(self, own_top: Tensor) -> Tensor:
        """Ties of the chain that embeds its own tokens with the one that embeds the text, while they embed the same."""
        known = own_top.where(self._alive(own_top), NONE)
        found = self.chains(self.anchors, self.depth, "drafted", Tokens(known.T))
        return self._ties(found, known[:, None], "the undisturbed chain", "drafted")

    def _ties(self, found: Steps, known: Tensor, what: str, feed: Feed) -> Tensor:
        """Where a chain differs from what is known of it, [anchor, step]; a chain that embeds its own tokens goes another way from
        a tie on."""
        lack, top = (_over_steps(found, name).view(known.shape) for name in ("lack", "top"))
        differs = (top != known) & (known != NONE)
        if feed == "drafted":
            before = torch.cat([torch.zeros_like(differs[..., :1]), differs[..., :-1]], -1).cumsum(-1) > 0
            lack, differs = lack.masked_fill(before, 0), differs & ~before
        return ties(lack, differs, self.drafter, what)


def _over_steps(steps: Steps, name: str) -> Tensor:
    """[row, step]."""
    return torch.stack([step[name] for step in steps], 1)
