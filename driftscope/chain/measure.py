"""What is read off one step of the chains of one prompt: norms, cosines, bucket masses, entropies, ranks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from driftscope.chain.baseline import key_regions
from driftscope.chain.chain import Text
from driftscope.chain.masses import (
    attention_entropy,
    bucket_keys,
    bucket_masses,
    heavy_keys,
    own_sinks,
    region_runs,
    rows_before,
)
from driftscope.drafter.argmax import largest
from driftscope.drafter.model import Drafter
from driftscope.drafter.norms import rms

BUCKETS = ("sink", "prompt", "committed", "drafted", "current", "virtual")
"""Disjoint parts of a query's attention; with `virtual` (learned sink logits) they sum to 1."""
SELF_GENERATED = "self_generated"
"""drafted + current, from step 2."""
HEAVIEST = 8
"""Keys of a step that are kept by name."""


@dataclass
class StepMeasure:
    """Callable for observe(): turns the sites of a step into quantities with one entry per anchor in front.

    `mass`, `excess` are [anchor, layer, head, bucket]; `keys` is [anchor, bucket].
    """

    drafter: Drafter
    text: Text
    baseline: Any
    """A Baseline; of a block drafter a BlockBaseline."""
    sinks: tuple[int, ...]
    anchors: Int[Tensor, " anchor"]
    heaviest: int = 0
    """How many keys to keep by name (`heavy_keys`)."""
    previous: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)
    """Carry of the step before and its RMS, by the first row of a chunk."""
    room: Tensor | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        token_ids = self.text.token_ids
        self.regions = key_regions(len(token_ids), self.sinks, self.text.prompt_length, token_ids.device)
        self.columns = torch.stack([self.regions[name] for name in ("sink", "prompt", "rest")], 1)
        self.runs, self.counts = region_runs(self.columns), rows_before(self.columns)
        first = int(self.anchors[0]) if len(self.anchors) else 0
        self.sinks_ahead = any(region == 0 and stop > first for region, _, stop in self.runs)
        # Draft id of every target id, -1 outside the draft vocabulary.
        self.draft_ids = torch.full((self.drafter.config.vocab_size,), -1, device=token_ids.device)
        self.draft_ids[self.drafter.target_ids] = torch.arange(len(self.drafter.target_ids), device=token_ids.device)

    def __call__(self, step: int, rows: slice, values: dict[str, Tensor]) -> dict[str, Tensor]:
        anchors = self.anchors[rows]
        out: dict[str, Tensor] = {}
        for name, value in values.items():
            if name.endswith(".attention") or name == "logits":
                continue
            size = rms(value)
            out[f"rms/{name}"] = size.mean(-1) if size.ndim == 2 else size
        if "carry" in values:
            out.update(self._carry(step, rows, anchors, values["carry"], out["rms/carry"]))
        out.update(self._updates(values, out))
        out.update(self._attention(step, anchors, values))
        out.update(self._logits(step, anchors, values["logits"]))
        return out

    def _carry(self, step: int, rows: slice, anchors: Tensor, carry: Tensor, size: Tensor) -> dict[str, Tensor]:
        index = self.baseline.rows(anchors, step)
        matched = self.baseline.carry_rms[index]
        out = {
            "cos_baseline": cosine(carry, size, self.baseline.carry[index], matched),
            "matched_growth": size / matched,
        }
        if step > 1:
            out["cos_prev"] = cosine(carry, size, *self.previous[rows.start])
        self.previous[rows.start] = carry.detach().clone(), size
        return out

    def _updates(self, values: dict[str, Tensor], sizes: dict[str, Tensor]) -> dict[str, Tensor]:
        """RMS of each update over the RMS of the stream that it is added to."""
        out = {}
        for layer in range(self.drafter.config.num_layers):
            after = values[f"layers.{layer}.after_attn"]
            before = rms(after.float() - values[f"layers.{layer}.attn_update"].float())
            out[f"update_ratio/layers.{layer}.attn"] = sizes[f"rms/layers.{layer}.attn_update"] / before
            stream = sizes[f"rms/layers.{layer}.after_attn"]
            out[f"update_ratio/layers.{layer}.mlp"] = sizes[f"rms/layers.{layer}.mlp_update"] / stream
        return out

    def _attention(self, step: int, anchors: Tensor, values: dict[str, Tensor]) -> dict[str, Tensor]:
        layers = range(self.drafter.config.num_layers)
        weights = [values[f"layers.{layer}.attention"].float() for layer in layers]
        on_sink = own_sinks(step, anchors, self.columns) if self.sinks_ahead else None
        mass = torch.stack([bucket_masses(w, step, on_sink, self.runs) for w in weights], 1)
        matched = self.baseline.masses(anchors, step)
        base = torch.stack([matched[name] for name in BUCKETS], -1)
        heavy = heavy_keys(weights, step, anchors, self.heaviest) if self.heaviest else {}
        return {
            **heavy,
            "mass": mass,
            "excess": mass - base,
            "keys": bucket_keys(step, anchors, on_sink, self.counts),
            "head_entropy": torch.stack([attention_entropy(w) for w in weights], 1),
        }

    def _logits(self, step: int, anchors: Tensor, logits: Tensor) -> dict[str, Tensor]:
        text = self.text.token_ids[anchors + 1 + step]
        draft = self.draft_ids[text]
        known = draft >= 0
        scores = logits.float()
        best = largest(scores)
        probs, work = self._room(scores)
        torch.softmax(scores, -1, out=probs)
        top, top_prob = (part.gather(-1, best[:, None]) for part in (scores, probs))
        index = draft.clamp(min=0)[:, None]
        # Counted in floats: a sum over booleans converts each of them to int64 first.
        above = torch.gt(scores, scores.gather(-1, index), out=work).sum(-1)
        nan = torch.full_like(above, float("nan"))
        return {
            "drafted": self.drafter.target_ids[best],
            "text": text,
            "rank": torch.where(known, 1 + above.long(), -1),
            "prob": torch.where(known, probs.gather(-1, index)[:, 0], nan),
            "top_prob": top_prob[:, 0],
            # log p = score - top + log(top_prob)
            "logit_entropy": -top_prob[:, 0].log() - torch.sub(scores, top, out=work).mul_(probs).sum(-1),
        }

    def _room(self, scores: Tensor) -> Tensor:
        """Two tensors like `scores` to work in, the same at every step: fresh memory of this size costs as much as the work."""
        if self.room is None or self.room.shape[1:] != scores.shape:
            self.room = scores.new_empty((2, *scores.shape))
        return self.room


def cosine(a: Tensor, a_rms: Tensor, b: Tensor, b_rms: Tensor) -> Float[Tensor, " anchor"]:
    """Cosine of the angle between rows whose RMS is known; 0 for a row of zeros."""
    norms = (a.shape[-1] * a_rms * b_rms).clamp(min=torch.finfo(torch.float32).tiny)
    return torch.linalg.vecdot(a.float(), b.float()) / norms
