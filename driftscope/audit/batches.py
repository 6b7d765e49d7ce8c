"""What every hypothesis is measured on: prompts in batches, a few anchors each, and the target's distribution there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from driftscope.audit.setting import Setting
from driftscope.captures.capture import Capture
from driftscope.target.model import Target

DEPTH = 4
"""Steps of a chain: the first, and three that run on what was carried."""
LAGS = (-2, -1, 1, 2)
MIN_ANCHORS = 4
_TOP = 128
_SPAN = 64
"""Anchors lie among the first so many of a continuation, so that the prefix pass stays short."""
_ROWS = 8192
"""Rows of text that one batch of prompts holds."""
_PADDED = 1.25
"""How much longer than the shortest prompt of a batch the longest may be: what is padded is computed for nothing."""
_HEAD_ROWS = 512
FIRST = 16
"""Prompts of the first pass, after which hopeless hypotheses are given up."""


@dataclass(frozen=True)
class Batch:
    """Prompts of like length, padded on the right. Offsets count from the anchor: 0 is its own position."""

    prompts: Int[Tensor, " prompt"]
    """Indices among the captures of the material."""
    token_ids: Int[Tensor, "prompt token"]
    rows: int
    """Rows of the prefix pass: up to the last anchor."""
    anchors: Int[Tensor, "prompt anchor"]
    valid: Bool[Tensor, "prompt anchor"]
    top_ids: Int[Tensor, "prompt anchor offset top"]
    top_probabilities: Float[Tensor, "prompt anchor offset top"]
    """The target's distribution over its next token at offset + LAGS[0] + 1, cut to the most probable tokens, sum 1."""


@dataclass(frozen=True)
class Material:
    """Captures, prepared once for all hypotheses."""

    captures: tuple[Capture, ...]
    batches: tuple[Batch, ...]
    device: torch.device
    first: int
    """How many of the batches make the first pass; their prompts are spread evenly over all."""

    @property
    def anchors(self) -> int:
        """Anchors of all prompts together."""
        return sum(int(batch.valid.sum()) for batch in self.batches)

    def part(self, chosen: Sequence[int], captures: Sequence[Capture], stride: int = 1) -> Material:
        """Some prompts only, of every `stride` anchors one. captures: other records of the chosen prompts, which may hold
        more boundaries."""
        place = {index: position for position, index in enumerate(chosen)}
        batches = []
        for batch in self.batches:
            kept = [row for row, index in enumerate(batch.prompts.tolist()) if index in place]
            if kept:
                prompts = torch.tensor([place[int(batch.prompts[row])] for row in kept])
                anchors, valid, ids, probabilities = (
                    tensor[kept, ::stride]
                    for tensor in (batch.anchors, batch.valid, batch.top_ids, batch.top_probabilities)
                )
                tokens = batch.token_ids[kept]
                batches.append(Batch(prompts, tokens, batch.rows, anchors, valid, ids, probabilities))
        return Material(tuple(captures), tuple(batches), self.device, len(batches))

    def features(self, setting: Setting, batch: Batch, dtype: torch.dtype) -> Float[Tensor, "prompt row width"]:
        """What row i of each prompt reads under the setting's lens, zero in the padding."""
        lens, parts = setting.lens, []
        for index in batch.prompts.tolist():
            own = self.captures[index]
            # Another prompt's features, at the same positions: right in size, wrong in content.
            source = self.captures[(index + 1) % len(self.captures)] if lens.shuffle == "features" else own
            read = (torch.arange(min(batch.rows, own.length)) + lens.feature_shift).clamp(min=0)
            part = setting.features(source)[read % source.length]
            parts.append(torch.nn.functional.pad(part, (0, 0, 0, batch.rows - len(part))))
        return torch.stack(parts).to(self.device, dtype)

    def embedded(self, setting: Setting, batch: Batch) -> Int[Tensor, "prompt token"]:
        """The tokens as the drafter embeds them: entry i + 1 belongs to row i."""
        ids, lens = batch.token_ids, setting.lens
        if lens.token_shift:
            ids = ids[:, (torch.arange(ids.shape[1], device=ids.device) + lens.token_shift).clamp(min=0)]
        if lens.shuffle == "tokens":
            order = torch.randperm(ids.shape[1], generator=torch.Generator().manual_seed(0))
            ids = ids[:, order.to(ids.device)]
        return ids


def prepare(
    target: Target,
    captures: Sequence[Capture],
    *,
    anchors: int = 16,
    device: torch.device | None = None,
) -> Material:
    """Choose up to `anchors` anchors a prompt, evenly among the first 64 outside loops, and look up the target there.

    Prompts with fewer than 4 such anchors are left out.
    """
    place = device or target.device
    chosen = [(capture, _anchors(capture, anchors)) for capture in captures]
    kept = [(capture, places) for capture, places in chosen if len(places) >= MIN_ANCHORS]
    rows = [int(places[-1]) + 1 for _, places in kept]
    # Two passes over a few prompts save nothing.
    early: Sequence[int] = range(len(kept))
    if len(kept) >= 2 * FIRST:
        early = torch.linspace(0, len(kept) - 1, FIRST).round().long().tolist()
    first, rest = (grouped([i for i in range(len(kept)) if (i in early) is taken], rows) for taken in (True, False))
    batches = [_batch(target, group, [kept[i] for i in group], place) for group in (*first, *rest)]
    return Material(tuple(capture for capture, _ in kept), tuple(batches), torch.device(place), len(first))


def grouped(prompts: Sequence[int], rows: Sequence[int]) -> list[list[int]]:
    """Prompts of like length together, as many as a batch holds."""
    groups: list[list[int]] = []
    for index in sorted(prompts, key=rows.__getitem__):
        alike = groups and rows[index] <= _PADDED * rows[groups[-1][0]]
        if alike and rows[index] * (len(groups[-1]) + 1) <= _ROWS:
            groups[-1].append(index)
        else:
            groups.append([index])
    return groups


def _anchors(capture: Capture, count: int) -> Int[Tensor, " anchor"]:
    """Anchors whose steps, and whose lags, have a token to compare with, none of them in a loop."""
    first, ahead = capture.prompt_length - 1, DEPTH + 1 + max(LAGS)
    places = torch.arange(max(first, -LAGS[0]), capture.length - ahead)
    if not len(places):
        return places
    looping = capture.loop[places[:, None] + torch.arange(2, DEPTH + 2)].any(-1)
    places = places[~looping][:_SPAN]
    if len(places) <= count:
        return places
    return places[torch.linspace(0, len(places) - 1, count).round().long()]


def _batch(target: Target, group: list[int], kept: list[tuple[Capture, Tensor]], device: torch.device | str) -> Batch:
    widest = max(len(places) for _, places in kept)
    last = max(int(places[-1]) for _, places in kept)
    offsets = torch.arange(LAGS[0] + 1, DEPTH + max(LAGS) + 1)
    token_ids = torch.zeros(len(kept), last + DEPTH + 2 + max(LAGS), dtype=torch.long)
    anchors = torch.zeros(len(kept), widest, dtype=torch.long)
    valid = torch.zeros(len(kept), widest, dtype=torch.bool)
    ids, probabilities = [], []
    for row, (capture, places) in enumerate(kept):
        text = capture.token_ids[: token_ids.shape[1]]
        token_ids[row, : len(text)] = text
        # Padding repeats the last anchor, and does not count.
        anchors[row] = torch.nn.functional.pad(places, (0, widest - len(places)), value=int(places[-1]))
        valid[row, : len(places)] = True
        wanted = anchors[row][:, None] + offsets
        positions, inverse = wanted.unique(return_inverse=True)
        top = [_top(target, part) for part in capture.final[positions].split(_HEAD_ROWS)]
        ids.append(torch.cat([part[0] for part in top])[inverse])
        probabilities.append(torch.cat([part[1] for part in top])[inverse])
    return Batch(
        torch.tensor(group),
        token_ids.to(device),
        last + 1,
        anchors.to(device),
        valid.to(device),
        torch.stack(ids).to(device),
        torch.stack(probabilities).to(device),
    )


def _top(target: Target, final: Tensor) -> tuple[Tensor, Tensor]:
    logits = target.head(final).float()
    values, ids = logits.topk(min(_TOP, logits.shape[-1]), -1)
    return ids.cpu(), values.softmax(-1).cpu()
