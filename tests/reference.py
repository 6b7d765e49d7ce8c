"""The drafter and its speculation loop written plainly from the weights, which the benchmarks race against as well."""

from __future__ import annotations

from torch import Tensor

from benchmarks import naive
from benchmarks.naive import forward, fuse
from driftscope.checkpoints.config import DrafterConfig

__all__ = ["forward", "fuse", "speculate"]


def speculate(
    config: DrafterConfig,
    w: naive.Weights,
    embedding: Tensor,
    token_ids: Tensor,
    features: Tensor,
    anchor: int,
    depth: int,
    feed: str,
) -> list[naive.Row]:
    """One chain from target features; for each step the sites of its row, attention over rows 0..r, the drafted id."""
    return naive.speculate(config, w, embedding, token_ids, fuse(config, w, features), anchor, depth, feed)
