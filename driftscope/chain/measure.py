"""What is read off one step of the chains of one prompt: norms, cosines, bucket masses, entropies, ranks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from driftscope.chain.baseline import key_regions
from driftscope.chain.chain import Text
from driftscope.chain.logit_measure import LogitMeasure
from driftscope.chain.masses import (
    attention_entropy,
    bucket_keys,
    bucket_masses,
    heavy_keys,
    own_sinks,
    region_runs,
    rows_before,
)
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

    def __post_init__(self) -> None:
        token_ids = self.text.token_ids
        self.regions = key_regions(len(token_ids), self.sinks, self.text.prompt_length, token_ids.device)
        self.columns = torch.stack([self.regions[name] for name in ("sink", "prompt", "rest")], 1)
        self.runs, self.counts = region_runs(self.columns), rows_before(self.columns)
        first = int(self.anchors[0]) if len(self.anchors) else 0
        self.sinks_ahead = any(region == 0 and stop > first for region, _, stop in self.runs)
        self.logits = LogitMeasure(self.drafter.target_ids, self.drafter.config.vocab_size)
        # Rows of consecutive anchors are looked up as views.
        self.first = first if bool((self.anchors.diff() == 1).all()) else None

    def __call__(self, step: int, rows: slice, values: dict[str, Tensor]) -> dict[str, Tensor]:
        anchors = self.anchors[rows]
        matched = self._matched(step, rows, anchors)
        out = _sizes({name: v for name, v in values.items() if not (name.endswith(".attention") or name == "logits")})
        if "carry" in values:
            out.update(self._carry(step, rows, matched, values["carry"], out["rms/carry"]))
        out.update(self._updates(values, out))
        out.update(self._attention(step, anchors, matched, values))
        out.update(self.logits(values["logits"], self.text.token_ids[anchors + 1 + step]))
        return out

    def _matched(self, step: int, rows: slice, anchors: Tensor) -> slice | Tensor:
        """Where the baseline holds the rows at which step `step` stands."""
        if self.first is None:
            index: Tensor = self.baseline.rows(anchors, step)
            return index
        start: int = self.baseline.rows(self.first + (rows.start or 0), step)
        return slice(start, start + len(anchors))

    def _carry(self, step: int, rows: slice, matched: slice | Tensor, carry: Tensor, size: Tensor) -> dict[str, Tensor]:
        usual = self.baseline.carry_rms[matched]
        out = {
            "cos_baseline": cosine(carry, size, self.baseline.carry[matched], usual),
            "matched_growth": size / usual,
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

    def _attention(
        self, step: int, anchors: Tensor, matched: slice | Tensor, values: dict[str, Tensor]
    ) -> dict[str, Tensor]:
        layers = range(self.drafter.config.num_layers)
        weights = [values[f"layers.{layer}.attention"].float() for layer in layers]
        on_sink = own_sinks(step, anchors, self.columns) if self.sinks_ahead else None
        mass = torch.stack([bucket_masses(w, step, on_sink, self.runs) for w in weights], 1)
        usual = self.baseline.masses(matched, step)
        base = torch.stack([usual[name] for name in BUCKETS], -1)
        heavy = heavy_keys(weights, step, anchors, self.heaviest) if self.heaviest else {}
        return {
            **heavy,
            "mass": mass,
            "excess": mass - base,
            "keys": bucket_keys(step, anchors, on_sink, self.counts),
            "head_entropy": torch.stack([attention_entropy(w) for w in weights], 1),
        }


def _sizes(values: Mapping[str, Float[Tensor, "anchor *head width"]]) -> dict[str, Float[Tensor, " anchor"]]:
    """`rms/{site}`, mean over the heads where there are some. Sites of one width are scaled at once, for at every step it is the
    number of small operations that costs."""
    made: dict[str, Tensor] = {}
    for width in dict.fromkeys(value.shape[-1] for value in values.values()):
        alike = {name: value for name, value in values.items() if value.shape[-1] == width}
        first = next(iter(alike.values()))
        norms = first.new_empty((len(alike), len(first)), dtype=torch.float32)
        for row, value in zip(norms.unbind(), alike.values(), strict=True):
            if value.ndim == 2:
                torch.linalg.vector_norm(value, dim=-1, dtype=torch.float32, out=row)
            else:
                torch.mean(torch.linalg.vector_norm(value, dim=-1, dtype=torch.float32), -1, out=row)
        made.update(zip(alike, norms.mul_(width**-0.5).unbind(), strict=True))
    return {f"rms/{name}": made[name] for name in values}


def cosine(a: Tensor, a_rms: Tensor, b: Tensor, b_rms: Tensor) -> Float[Tensor, " anchor"]:
    """Cosine of the angle between rows whose RMS is known; 0 for a row of zeros."""
    norms = (a.shape[-1] * a_rms * b_rms).clamp(min=torch.finfo(torch.float32).tiny)
    return torch.linalg.vecdot(a.float(), b.float()) / norms
