"""What is read off one step of the chains of one prompt: norms, cosines, bucket masses, entropies, ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from driftscope.baseline import key_regions
from driftscope.chain import Text
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
    previous: dict[int, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        token_ids = self.text.token_ids
        self.regions = key_regions(len(token_ids), self.sinks, self.text.prompt_length, token_ids.device)
        self.columns = torch.stack([self.regions[name] for name in ("sink", "prompt", "rest")], 1)
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
            out.update(self._carry(step, rows, anchors, values["carry"]))
        out.update(self._updates(values, out))
        out.update(self._attention(step, anchors, values))
        out.update(self._logits(step, anchors, values["logits"]))
        return out

    def _carry(self, step: int, rows: slice, anchors: Tensor, carry: Tensor) -> dict[str, Tensor]:
        index = self.baseline.rows(anchors, step)
        out = {
            "cos_baseline": torch.cosine_similarity(carry.float(), self.baseline.carry[index].float(), dim=-1),
            "matched_growth": rms(carry) / self.baseline.carry_rms[index],
        }
        if step > 1:
            before = self.previous[rows.start]
            out["cos_prev"] = torch.cosine_similarity(carry.float(), before.float(), dim=-1)
        self.previous[rows.start] = carry.detach().clone()
        return out

    def _updates(self, values: dict[str, Tensor], sizes: dict[str, Tensor]) -> dict[str, Tensor]:
        """RMS of each update over the RMS of the stream that it is added to."""
        out = {}
        for layer in range(self.drafter.config.num_layers):
            after = values[f"layers.{layer}.after_attn"]
            before = rms(after.float() - values[f"layers.{layer}.attn_update"].float())
            out[f"update_ratio/layers.{layer}.attn"] = sizes[f"rms/layers.{layer}.attn_update"] / before
            out[f"update_ratio/layers.{layer}.mlp"] = sizes[f"rms/layers.{layer}.mlp_update"] / rms(after)
        return out

    def _attention(self, step: int, anchors: Tensor, values: dict[str, Tensor]) -> dict[str, Tensor]:
        layers = range(self.drafter.config.num_layers)
        weights = [values[f"layers.{layer}.attention"].float() for layer in layers]
        mass = torch.stack([bucket_masses(w, step, anchors, self.columns) for w in weights], 1)
        matched = self.baseline.masses(anchors, step)
        base = torch.stack([matched[name] for name in BUCKETS], -1)
        entropy = torch.stack([torch.special.entr(w).sum(-1) for w in weights], 1)
        heavy = heavy_keys(weights, step, anchors, self.heaviest) if self.heaviest else {}
        return {
            **heavy,
            "mass": mass,
            "excess": mass - base,
            "keys": bucket_keys(step, anchors, self.columns),
            "head_entropy": entropy,
        }

    def _logits(self, step: int, anchors: Tensor, logits: Tensor) -> dict[str, Tensor]:
        text = self.text.token_ids[anchors + 1 + step]
        draft = self.draft_ids[text]
        known = draft >= 0
        scores = logits.float()
        best = scores.argmax(-1)
        log_probs, probs = scores.log_softmax(-1), scores.softmax(-1)
        index = draft.clamp(min=0)[:, None]
        own = log_probs.gather(-1, index)[:, 0]
        nan = torch.full_like(own, float("nan"))
        return {
            "drafted": self.drafter.target_ids[best],
            "text": text,
            "rank": torch.where(known, 1 + (scores > scores.gather(-1, index)).sum(-1), -1),
            "prob": torch.where(known, own.exp(), nan),
            "top_prob": probs.amax(-1),
            "logit_entropy": -torch.linalg.vecdot(probs, log_probs),
        }


def bucket_masses(
    weights: Float[Tensor, "anchor head key"],
    step: int,
    anchors: Int[Tensor, " anchor"],
    columns: Float[Tensor, "row region"],
) -> Float[Tensor, "anchor head bucket"]:
    """Mass per bucket. Keys are the prefix rows in view and then the chain's own rows t .. t+step-1; precedence is sink,
    current, drafted, committed, prompt. columns: indicator of sink, prompt and rest per row of the text."""
    rows = weights.shape[-1] - step
    near = weights[..., rows:]
    on_sink = own_sinks(step, anchors, columns)
    sink, prompt, committed = (weights[..., :rows] @ columns[:rows]).unbind(-1)
    sink = sink + (near * on_sink[:, None]).sum(-1)
    near = near * ~on_sink[:, None]
    current = near[..., -1]
    if step > 1:
        committed = committed + near[..., 0]
    drafted = near[..., 1:-1].sum(-1) if step > 2 else torch.zeros_like(current)
    virtual = (1 - weights.sum(-1)).clamp(min=0)
    return torch.stack([sink, prompt, committed, drafted, current, virtual], -1)


def own_sinks(step: int, anchors: Tensor, columns: Tensor) -> Bool[Tensor, "anchor step"]:
    """Whether each of the chain's own rows stands at a sink position."""
    return columns[anchors[:, None] + torch.arange(step, device=anchors.device), 0] > 0


def bucket_keys(step: int, anchors: Int[Tensor, " anchor"], columns: Tensor) -> Int[Tensor, "anchor bucket"]:
    """Number of keys that each bucket holds for a query with full attention."""
    before = torch.cat([columns.new_zeros(1, 3), columns.cumsum(0)])[anchors].long()  # rows < t per region
    on_sink = own_sinks(step, anchors, columns)
    own = ~on_sink
    sink = before[:, 0] + on_sink.sum(-1)
    committed = before[:, 2] + (own[:, 0] if step > 1 else 0)
    drafted = own[:, 1:-1].sum(-1) if step > 2 else torch.zeros_like(sink)
    return torch.stack([sink, before[:, 1], committed, drafted, own[:, -1].long(), torch.zeros_like(sink)], -1)


def heavy_keys(
    weights: Sequence[Float[Tensor, "anchor head key"]], step: int, anchors: Int[Tensor, " anchor"], count: int
) -> dict[str, Tensor]:
    """The `count` keys with the most attention, mean over layers and heads, heaviest first, each [anchor, count].

    `heavy_position` is the row's position and `heavy_own` whether it is one of the chain's own. What a query does not see
    has mass 0, and so has the rest where there are fewer keys.
    """
    mean = torch.stack([w.mean(1) for w in weights]).mean(0)
    rows = mean.shape[-1] - step
    mass, index = mean.topk(min(count, mean.shape[-1]), -1)
    own = index >= rows
    found = {
        "heavy_mass": mass,
        "heavy_position": torch.where(own, anchors[:, None] + index - rows, index).int(),
        "heavy_own": own,
    }
    short = count - mass.shape[-1]
    return {name: torch.nn.functional.pad(value, (0, short)) for name, value in found.items()} if short else found
