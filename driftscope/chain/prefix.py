"""The prefix pass: the drafter once over rows with real target features, in chunks of rows."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor

from driftscope.chain.baseline import SINK_CANDIDATES, SINK_ROWS, Baseline, PrefixPass, chunk_rows, key_regions
from driftscope.chain.block_prefix import block_pass
from driftscope.chain.chain import Text
from driftscope.drafter.attention import Prefix, Window, causal_attention
from driftscope.drafter.block import BlockDrafter
from driftscope.drafter.layer import AttentionLayer, KeysDoneError
from driftscope.drafter.model import Drafter
from driftscope.drafter.norms import rms


@torch.no_grad()
def prefix_pass(
    drafter: Drafter,
    text: Text,
    windows: list[Window],
    *,
    sinks: tuple[int, ...],
    horizon: int,
    rows: int | None = None,
    budget: int = 256 << 20,
) -> PrefixPass:
    """Run the drafter once over the first `rows` rows of `text` (all when None), in chunks of rows whose attention fits into
    `budget` bytes. Before the first anchor the last layer makes keys and values only, for nothing else is read there."""
    config = drafter.config
    if isinstance(drafter, BlockDrafter):
        return block_pass(drafter, text, windows, sinks=sinks, horizon=horizon, rows=rows, budget=budget)
    rows = len(text.token_ids) - 1 if rows is None else rows
    first = text.prompt_length - 1
    made = _Made(drafter, windows, key_regions(rows, sinks, text.prompt_length, text.features.device), first, horizon)
    # Scores and probabilities in float32, and a copy for the masses.
    step = chunk_rows(rows * config.num_heads * 4 * 3, budget)
    starts = [*range(0, first, step), *range(first, rows, step), rows]
    for start, stop in pairwise(starts):
        part = slice(start, stop)
        positions = torch.arange(start, stop, device=text.features.device)
        state = drafter.fuse(text.features[part])
        with suppress(KeysDoneError):
            residual = drafter.step(state, text.token_ids[start + 1 : stop + 1], positions, partial(made.attend, part))
            made.carry[start - first : stop - first] = drafter.leave(residual)[0]
    counted = min(SINK_ROWS, rows)
    seen = (counted - torch.arange(SINK_CANDIDATES, device=positions.device)).clamp(min=1)
    return PrefixPass(made.prefix, made.baseline(), made.alpha / seen)


class _Made:
    """What the chunks of a pass leave behind, filled as they come."""

    def __init__(
        self, drafter: Drafter, windows: list[Window], regions: dict[str, Tensor], first: int, horizon: int
    ) -> None:
        config, device = drafter.config, regions["sink"].device
        self.windows, self.regions, self.first, self.horizon = windows, regions, first, horizon
        self.rows, self.last_layer = len(regions["sink"]), config.num_layers - 1
        self.prefix: list[Prefix] = []
        wide = (self.rows - first, config.num_layers, config.num_heads)
        self.sink, self.prompt, self.total = (torch.empty(wide, device=device) for _ in range(3))
        self.recent = torch.empty((*wide, horizon), device=device)
        self.carry = torch.empty((self.rows - first, config.hidden_size), dtype=drafter.dtype, device=device)
        self.alpha = torch.zeros(config.num_layers, config.num_heads, SINK_CANDIDATES, device=device)

    def baseline(self) -> Baseline:
        return Baseline(self.first, self.carry, rms(self.carry), self.sink, self.prompt, self.total, self.recent)

    def attend(self, part: slice, layer: AttentionLayer, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Attention of the rows `part`, all before the first anchor or none. Raises KeysDoneError."""
        j = layer.index
        if j == len(self.prefix):
            self.prefix.append(Prefix.like(key, value, self.rows))
        own = self.prefix[j]
        own.keys[:, part], own.values[:, part] = key.transpose(0, 1), value.transpose(0, 1)
        before = part.stop <= self.first
        done = before and j == self.last_layer
        if done:
            part = slice(part.start, min(part.stop, SINK_ROWS))
            if part.stop <= part.start:
                raise KeysDoneError
            query = query[: part.stop - part.start]
        mixed, weights = causal_attention(
            query, own, part, self.windows[j], scaling=layer.scaling, sink_logits=layer.sink_logits
        )
        early = weights[: max(0, SINK_ROWS - part.start), :, :SINK_CANDIDATES].sum(0)
        self.alpha[j, :, : early.shape[-1]] += early
        if done:
            raise KeysDoneError
        if not before:
            here, end = slice(part.start - self.first, part.stop - self.first), part.stop
            self.sink[here, j] = weights @ self.regions["sink"][:end]
            self.prompt[here, j] = weights @ self.regions["prompt"][:end]
            self.total[here, j] = weights.sum(-1)
            self.recent[here, j] = last_masses(weights, end, self.horizon, self.regions["sink"])
        return mixed


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
