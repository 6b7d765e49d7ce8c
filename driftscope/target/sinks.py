"""Attention sinks: early positions that collect attention from many heads whatever the text.

alpha and its threshold as in Gu et al., "When Attention Sink Emerges in Language Models" (arXiv 2410.10781).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Float32, Float64, Int
from torch import Tensor

from driftscope.errors import TargetError
from driftscope.target.model import Target

ROWS = 64
CANDIDATES = 32
THRESHOLD = 0.3
SHARE = 0.1


@runtime_checkable
class HasTokens(Protocol):
    """A capture, or anything with the token ids of a text."""

    @property
    def token_ids(self) -> Int[Tensor, " T"]: ...


@dataclass(frozen=True)
class SinkReport:
    """Which positions are sinks."""

    positions: tuple[int, ...]
    """Those whose share exceeds the limit; may be empty."""
    shares: Float64[np.ndarray, " candidates"]
    """Share of (prompt, layer, head) with alpha above the threshold; NaN where no text is long enough."""
    heads: int
    """Number of (prompt, layer, head) counted at position 0."""


def key_alpha(attention: Float[Tensor, "... T T"]) -> Float32[Tensor, "... T"]:
    """alpha_k = sum over rows i >= k of A[i, k] / (T - k), of causal attention probabilities."""
    rows = attention.shape[-2]
    return attention.float().tril().sum(-2) / torch.arange(rows, 0, -1, device=attention.device)


def sinks_from_attention(
    attentions: Iterable[Float[Tensor, "... heads T T"]],
    *,
    rows: int = ROWS,
    candidates: int = CANDIDATES,
    threshold: float = THRESHOLD,
    share: float = SHARE,
) -> SinkReport:
    """Sinks by the rule of `detect_sinks`, of causal attention probabilities, one tensor per prompt and layer.

    Only the first `rows` rows count. Of a shorter text of T rows, only the positions below T / 2 do: a later key has
    too few rows behind it.
    """
    over = np.zeros(candidates)
    total = np.zeros(candidates)
    for attention in attentions:
        head = attention[..., :rows, :rows]
        alpha = key_alpha(head).flatten(0, -2)
        counted = min(candidates, (head.shape[-1] + 1) // 2)
        over[:counted] += (alpha[:, :counted] > threshold).sum(0).cpu().numpy()
        total[:counted] += len(alpha)
    shares = np.divide(over, total, out=np.full(candidates, np.nan), where=total > 0)
    positions = tuple(int(position) for position in np.flatnonzero(np.nan_to_num(shares) > share))
    return SinkReport(positions, shares, int(total[0]))


def detect_sinks(
    target: Target,
    captures: Sequence[HasTokens],
    *,
    rows: int = ROWS,
    candidates: int = CANDIDATES,
    threshold: float = THRESHOLD,
    share: float = SHARE,
) -> SinkReport:
    """Positions p < `candidates` whose share of (prompt, full-attention layer, head) with alpha > `threshold` exceeds
    `share`.

    Attention is taken with the eager implementation over the first `rows` tokens of each text. Layers with a window
    under `rows` and layers without softmax attention do not count. Raises TargetError when the model gives no
    probabilities.
    """
    return sinks_from_attention(
        _attentions(target, captures, rows), rows=rows, candidates=candidates, threshold=threshold, share=share
    )


def _attentions(target: Target, captures: Sequence[HasTokens], rows: int) -> Iterator[Tensor]:
    learned = any(name.endswith(("sinks", "sink")) for name, _ in target.model.named_parameters())
    extra: dict[str, Any] = {"logits_to_keep": 1} if target.accepts("logits_to_keep") else {}
    with _eager(target.model):
        for capture in captures:
            ids = capture.token_ids[:rows].unsqueeze(0)
            layers = target.forward(ids, output_attentions=True, **extra).attentions or ()
            for attention in _full_attention(target, layers, rows):
                _check_rows(target, attention, learned)
                yield attention


def _full_attention(target: Target, attentions: Sequence[Tensor | None], rows: int) -> list[Tensor]:
    """Those of layers whose rows see all keys before them; layer types are named as transformers does."""
    kinds = _layer_kinds(target.text_config, target.num_layers)
    window = getattr(target.text_config, "sliding_window", None)
    windows = {
        "full_attention": None,
        "hybrid": None,
        "sliding_attention": window,
        "hybrid_sliding": window,
        "chunked_attention": getattr(target.text_config, "attention_chunk_size", None),
        "indexed_attention": getattr(target.text_config, "index_topk", None),
    }
    if len(attentions) != len(kinds):
        # Hybrid models report only the layers that have attention.
        kinds = [kind for kind in kinds if kind in windows]
    present = [attention for attention in attentions if attention is not None]
    if not present or len(attentions) != len(kinds):
        raise TargetError(
            f"target {target.name}: {len(present)} attention matrices for {len(kinds)} layers, "
            "so sinks cannot be found; name them with --sink"
        )
    return [
        attention
        for attention, kind in zip(attentions, kinds, strict=True)
        if attention is not None and kind in windows and (windows[kind] or rows) >= rows
    ]


def _layer_kinds(config: Any, count: int) -> list[str]:
    kinds = getattr(config, "layer_types", None)
    if kinds:
        return list(kinds)
    return ["sliding_attention" if getattr(config, "sliding_window", None) else "full_attention"] * count


def _check_rows(target: Target, attention: Tensor, learned: bool) -> None:
    """Rows sum to 1, or to less where a learned sink takes its part."""
    sums = attention.float().sum(-1)
    tolerance = 1e-3 if attention.dtype == torch.float32 else 2e-2
    low, high = float(sums.min()), float(sums.max())
    if not (high <= 1 + tolerance and low >= (0 if learned else 1 - tolerance)):
        raise TargetError(
            f"target {target.name}: attention rows sum to {low:.3f} .. {high:.3f}, expected 1; "
            "name the sinks with --sink"
        )


@contextlib.contextmanager
def _eager(model: Any) -> Iterator[None]:
    """Eager attention for the time of the block: the others return no probabilities."""
    before = {"": model.config._attn_implementation}
    for name in getattr(model.config, "sub_configs", {}):
        inner = getattr(model.config, name, None)
        if inner is not None:
            before[name] = inner._attn_implementation
    model.set_attn_implementation("eager")
    try:
        yield
    finally:
        model.set_attn_implementation(before)
