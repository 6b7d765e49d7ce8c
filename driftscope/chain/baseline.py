"""What a prefix pass leaves behind: keys and values from real target features, and the position-matched baseline.

Row r of the pass is what the drafter does at position r without drafting: its carry and its attention masses are what
step k of anchor r - k + 1 is compared with, which separates drift from mere recency.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from driftscope.drafter.attention import Prefix

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


def key_regions(
    rows: int, sinks: tuple[int, ...], prompt_length: int, device: torch.device
) -> dict[str, Float[Tensor, " row"]]:
    """Indicator columns over prefix rows: `sink`, `prompt` (rows 0..P-2 that are no sink) and `rest`."""
    index = torch.arange(rows, device=device)
    sink = torch.isin(index, torch.tensor(sinks, dtype=torch.long, device=device))
    prompt = (index < prompt_length - 1) & ~sink
    return {"sink": sink.float(), "prompt": prompt.float(), "rest": (~sink & ~prompt).float()}
