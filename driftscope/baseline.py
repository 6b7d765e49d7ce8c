"""The prefix pass: keys and values from real target features, and the position-matched baseline read off the same rows.

Row r of this pass is what the drafter does at position r without drafting: its carry and its attention masses are what
step k of anchor r - k + 1 is compared with, which separates drift from mere recency.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor

from driftscope.chain import Text
from driftscope.drafter.attention import Prefix, Window, causal_attention
from driftscope.drafter.layer import AttentionLayer
from driftscope.drafter.model import Drafter
from driftscope.drafter.norms import rms

SINK_CANDIDATES = 32
SINK_ROWS = 64


@dataclass(frozen=True)
class Baseline:
    """Per row from `first_row` (= P-1) on. Masses are shares of one query's attention and keep layer and head apart."""

    first_row: int
    carry: Float[Tensor, "row hidden"]
    carry_rms: Float[Tensor, " row"]
    sink: Float[Tensor, "row layer head"]
    prompt: Float[Tensor, "row layer head"]
    total: Float[Tensor, "row layer head"]
    """1, or less with learned sink logits."""
    recent: Float[Tensor, "row layer head back"]
    """Mass on row r - back, sink rows excepted."""

    def rows(self, anchors: Int[Tensor, " anchor"], step: int) -> Int[Tensor, " anchor"]:
        """Indices into this baseline of the rows at which step `step` of the anchors stands."""
        return anchors + step - 1 - self.first_row

    def masses(self, anchors: Int[Tensor, " anchor"], step: int) -> dict[str, Float[Tensor, "anchor layer head"]]:
        """The baseline's mass on the very positions that make up each bucket at `step`."""
        rows = self.rows(anchors, step)
        recent = self.recent[rows]
        sink, prompt, total = self.sink[rows], self.prompt[rows], self.total[rows]
        current = recent[..., 0]
        drafted = recent[..., 1 : max(step - 1, 1)].sum(-1)
        return {
            "sink": sink,
            "prompt": prompt,
            "committed": total - sink - prompt - current - drafted,
            "drafted": drafted,
            "current": current,
            "virtual": 1 - total,
        }


@dataclass(frozen=True)
class PrefixPass:
    """What one depth-1 pass over a text leaves behind."""

    prefix: list[Prefix]
    baseline: Any
    """A Baseline; of a block drafter a BlockBaseline."""
    alpha: Float[Tensor, "layer head position"]
    """Mean mass that rows up to 64 put on each of the first 32 positions, as the sink rule wants it."""


def chunk_rows(bytes_per_row: int, budget: int) -> int:
    """How many rows of `bytes_per_row` fit into `budget` bytes, at least one."""
    return max(1, budget // max(1, bytes_per_row))


@torch.no_grad()
def prefix_pass(
    drafter: Drafter,
    text: Text,
    windows: list[Window],
    *,
    sinks: tuple[int, ...],
    horizon: int,
    budget: int = 256 << 20,
) -> PrefixPass:
    """Run the drafter once over all rows of `text`, in chunks of rows whose attention fits into `budget` bytes."""
    config = drafter.config
    if config.layer_form == "dflash":
        from driftscope.block_baseline import block_pass

        return block_pass(cast(Any, drafter), text, windows, sinks=sinks, horizon=horizon, budget=budget)
    rows = len(text.token_ids) - 1
    first = text.prompt_length - 1
    device = text.features.device
    prefix: list[Prefix] = []
    regions = key_regions(rows, sinks, text.prompt_length, device)
    wide = (rows - first, config.num_layers, config.num_heads)
    sink, prompt, total = (torch.empty(wide, device=device) for _ in range(3))
    recent = torch.empty((*wide, horizon), device=device)
    carry = torch.empty((rows - first, config.hidden_size), dtype=drafter.dtype, device=device)
    alpha = torch.zeros(config.num_layers, config.num_heads, SINK_CANDIDATES, device=device)
    # Scores and probabilities in float32, and a copy for the masks.
    step = chunk_rows(rows * config.num_heads * 4 * 3, budget)
    for start in range(0, rows, step):
        part = slice(start, min(start + step, rows))

        def attend(layer: AttentionLayer, query: Tensor, key: Tensor, value: Tensor, part: slice = part) -> Tensor:
            j = layer.index
            if j == len(prefix):
                prefix.append(Prefix.like(key, value, rows))
            prefix[j].keys[:, part], prefix[j].values[:, part] = key.transpose(0, 1), value.transpose(0, 1)
            mixed, weights = causal_attention(
                query, prefix[j], part, windows[j], scaling=layer.scaling, sink_logits=layer.sink_logits
            )
            early = weights[: max(0, SINK_ROWS - part.start), :, :SINK_CANDIDATES].sum(0)
            alpha[j, :, : early.shape[-1]] += early
            kept = slice(max(first - part.start, 0), None)
            weights = weights[kept]
            if weights.shape[0]:
                here = slice(part.stop - weights.shape[0] - first, part.stop - first)
                sink[here, j] = weights @ regions["sink"][: part.stop]
                prompt[here, j] = weights @ regions["prompt"][: part.stop]
                total[here, j] = weights.sum(-1)
                recent[here, j] = last_masses(weights, part.stop, horizon, regions["sink"])
            return mixed

        positions = torch.arange(part.start, part.stop, device=device)
        state = drafter.fuse(text.features[part])
        residual = drafter.step(state, text.token_ids[part.start + 1 : part.stop + 1], positions, attend)
        if part.stop > first:
            kept = residual[max(first - part.start, 0) :]
            carry[part.stop - len(kept) - first : part.stop - first] = drafter.leave(kept)[0]
    counted = min(SINK_ROWS, rows)
    seen = (counted - torch.arange(SINK_CANDIDATES, device=device)).clamp(min=1)
    baseline = Baseline(first, carry, rms(carry), sink, prompt, total, recent)
    return PrefixPass(prefix, baseline, alpha / seen)


def key_regions(
    rows: int, sinks: tuple[int, ...], prompt_length: int, device: torch.device
) -> dict[str, Float[Tensor, " row"]]:
    """Indicator columns over prefix rows: `sink`, `prompt` (rows 0..P-2 that are no sink) and `rest`."""
    index = torch.arange(rows, device=device)
    sink = torch.isin(index, torch.tensor(sinks, dtype=torch.long, device=device))
    prompt = (index < prompt_length - 1) & ~sink
    return {"sink": sink.float(), "prompt": prompt.float(), "rest": (~sink & ~prompt).float()}


def last_masses(
    weights: Float[Tensor, "row head seen"], end: int, horizon: int, sink: Float[Tensor, " key"]
) -> Float[Tensor, "row head back"]:
    """Mass of each of the last `end - row` queries on row r - back for back = 0 .. horizon-1; sink rows count nothing."""
    count = weights.shape[0]
    queries = torch.arange(end - count, end, device=weights.device)
    keys = queries[:, None] - torch.arange(horizon, device=weights.device)  # [row, back]
    counted = (keys >= 0) & (sink[keys.clamp(min=0)] == 0)
    index = keys.clamp(min=0)[:, None].expand(-1, weights.shape[1], -1)
    return weights.gather(-1, index) * counted[:, None]
