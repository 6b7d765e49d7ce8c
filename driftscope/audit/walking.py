"""The served walk of a setting: what every anchor of a few texts accepts, as an engine would that reads the checkpoint so.

A drafted chain whose tokens so far equal the text's *is* the text-fed chain, so step k needs to run only for the
anchors whose steps
before it were all accepted: most of the steps of a chain are never run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from driftscope.audit.batches import Batch, Material, grouped
from driftscope.audit.hypotheses import Hypothesis
from driftscope.audit.score import Runner
from driftscope.audit.setting import Setting
from driftscope.captures.capture import Capture
from driftscope.drafter import Drafter
from driftscope.drafter.argmax import largest
from driftscope.drafter.attention import ChainMemory
from driftscope.stats.walks import PromptWalk, Walks

_HEAD_ROWS = 1024
_NO_TOKEN = -1


class Walker(Runner):
    """Walks settings over captures, `depth` steps from every anchor. `embedding` and `head` are the target's."""

    def __init__(
        self,
        captures: Sequence[Capture],
        depth: int,
        embedding: Tensor,
        head: Tensor,
        dtype: torch.dtype,
        device: torch.device | str,
        *,
        anchors: int | None = None,
    ) -> None:
        """anchors: at most so many of each text, the first ones."""
        self.depth = depth
        material = _material(captures, depth, torch.device(device), anchors)
        super().__init__(material, embedding, head, dtype)
        self._base: dict[int, tuple[ChainMemory, Tensor]] = {}

    @torch.no_grad()
    def walk(
        self, setting: Setting, hypothesis: Hypothesis | None = None, prompts: Sequence[int] | None = None
    ) -> Walks:
        """What is accepted under `setting`, or under what a hypothesis makes of it.

        prompts: indices of the captures, all of them without it. Raises CheckpointError where the shapes do not fit.
        """
        changed = setting if hypothesis is None else hypothesis.apply(setting)
        drafter = self.build(changed)
        if self._states is None or self._states[0] is not setting:
            self._states, self._base = (setting, {}), {}
        wanted = set(range(len(self.material.captures)) if prompts is None else prompts)
        reach = "all" if hypothesis is None else hypothesis.reach
        found: dict[int, PromptWalk] = {}
        for index, batch in enumerate(self.material.batches):
            if not wanted & set(batch.prompts.tolist()):
                continue
            embedded = self.material.embedded(changed, batch).clamp(min=0)
            if reach in ("later", "logits"):
                # Rows of the text and step 1 are those of the declared setting.
                first = self._first_of(setting, index)
            else:
                shared = reach == "chain" and drafter.config.num_layers == 1
                prefix = self._first_of(setting, index)[0].prefix if shared else None
                first = self._first(drafter, changed, index, embedded, prefix)
            accepted = self._accepted(drafter, changed, batch, embedded, *first)
            for row, prompt in enumerate(batch.prompts.tolist()):
                record = self.material.captures[prompt]
                count = int(batch.valid[row].sum())
                own = accepted[row, :count].cpu().numpy()
                found[prompt] = PromptWalk(record.prompt_id, record.category, record.new_tokens, own)
        return Walks(self.depth, tuple(found[prompt] for prompt in sorted(wanted & found.keys())))

    def _first_of(self, setting: Setting, index: int) -> tuple[ChainMemory, Tensor]:
        if index not in self._base:
            embedded = self.material.embedded(setting, self.material.batches[index]).clamp(min=0)
            self._base[index] = self._first(self._drafter(setting, keep=True), setting, index, embedded, None)
        return self._base[index]

    def _accepted(
        self, drafter: Drafter, setting: Setting, batch: Batch, embedded: Tensor, memory: ChainMemory, residual: Tensor
    ) -> Int[Tensor, "prompt anchor"]:
        prompts, count = batch.anchors.shape
        accepted = torch.zeros(prompts, count, dtype=torch.long, device=batch.anchors.device)
        # Columns of `accepted` that the anchors at hand stand for.
        places = torch.arange(count, device=batch.anchors.device).expand(prompts, -1)
        alive = batch.valid
        memory = replace(memory.after(1), windows=drafter.windows)
        for step in range(1, self.depth + 1):
            text = batch.token_ids.gather(1, batch.anchors + 1 + step)
            alive = alive & (self._drafted(drafter, residual).view_as(text) == text)
            accepted.scatter_add_(1, places, alive.long())
            if step == self.depth or not alive.any():
                break
            batch, memory, residual, chosen, alive = _narrowed(batch, memory, residual, alive)
            places = places.gather(1, chosen)
            if not setting.lens.own_rows:
                memory = memory.after(1, dropped=step - 1)
            state = drafter.leave(residual)[0]
            residual = self._step(drafter, setting, memory, state, embedded, step + 1)
        return accepted

    def _drafted(self, drafter: Drafter, residual: Tensor) -> Tensor:
        """Tokens of the target's vocabulary. In pieces, because logits can be larger than the drafter."""
        best = [largest(drafter.finish(part)[1].float()) for part in residual.split(_HEAD_ROWS)]
        return drafter.target_ids[torch.cat(best)]


def _narrowed(
    batch: Batch, memory: ChainMemory, residual: Tensor, alive: Bool[Tensor, "prompt anchor"]
) -> tuple[Batch, ChainMemory, Tensor, Tensor, Tensor]:
    """Everything for the living anchors alone, as many columns as the prompt with most of them has."""
    prompts, count = alive.shape
    kept = int(alive.sum(1).max())
    chosen = (~alive).long().argsort(dim=1, stable=True)[:, :kept]

    def of(part: Tensor) -> Tensor:
        index = chosen.view(prompts, kept, *[1] * (part.ndim - 2)).expand(-1, -1, *part.shape[2:])
        return part.gather(1, index)

    smaller = replace(
        batch,
        anchors=of(batch.anchors),
        valid=of(alive),
        # Empty, and as wide as the rest.
        top_ids=batch.top_ids[:, :kept],
        top_probabilities=batch.top_probabilities[:, :kept],
    )
    narrow = replace(
        memory,
        anchors=smaller.anchors,
        own_keys=[[of(key) for key in layer] for layer in memory.own_keys],
        own_values=[[of(value) for value in layer] for layer in memory.own_values],
    )
    return smaller, narrow, of(residual.unflatten(0, (prompts, count))).flatten(0, 1), chosen, of(alive)


def _material(captures: Sequence[Capture], depth: int, device: torch.device, anchors: int | None) -> Material:
    """Every anchor that has a token to be compared with; nothing is looked up of the target's distribution."""
    places = [torch.arange(record.prompt_length - 1, record.length - 2)[:anchors] for record in captures]
    kept = [index for index, own in enumerate(places) if len(own)]
    rows = [int(places[index][-1]) + 1 if len(places[index]) else 0 for index in range(len(captures))]
    batches = [_batch(group, captures, places, depth, device) for group in grouped(kept, rows)]
    return Material(tuple(captures), tuple(batches), device, len(batches))


def _batch(
    group: list[int], captures: Sequence[Capture], places: Sequence[Tensor], depth: int, device: torch.device
) -> Batch:
    widest = max(len(places[index]) for index in group)
    last = max(int(places[index][-1]) for index in group)
    token_ids = torch.full((len(group), last + depth + 3), _NO_TOKEN)
    anchors = torch.zeros(len(group), widest, dtype=torch.long)
    valid = torch.zeros(len(group), widest, dtype=torch.bool)
    for row, index in enumerate(group):
        text, own = captures[index].token_ids[: token_ids.shape[1]], places[index]
        token_ids[row, : len(text)] = text
        # Padding repeats the last anchor, and does not count.
        anchors[row] = torch.nn.functional.pad(own, (0, widest - len(own)), value=int(own[-1]))
        valid[row, : len(own)] = True
    nothing = torch.zeros(len(group), widest, 0, 0, device=device)
    return Batch(
        torch.tensor(group),
        token_ids.to(device),
        last + 1,
        anchors.to(device),
        valid.to(device),
        nothing.long(),
        nothing,
    )
