"""Rows and chains one at a time: whole attention rows over whole lists of keys, patches put in by hand.

Of the drafter only its own modules are used; prefix pass, chain, attention, sites and interventions are not.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from driftscope.chain.chain import Text
from driftscope.chain.patches import Patch
from driftscope.drafter import Drafter
from driftscope.drafter.attention import Window


@dataclass
class Step:
    """What one row took in and drafted. Per layer: its value, and its attention over the rows 0 .. r."""

    state: Tensor
    values: list[Tensor] = field(default_factory=list)
    weights: list[Tensor] = field(default_factory=list)
    keys: list[Tensor] = field(default_factory=list)
    logits: Tensor = field(default_factory=lambda: torch.empty(0))
    carry: Tensor = field(default_factory=lambda: torch.empty(0))
    drafted: int = -1


def softmax_row(layer: Any, query: Tensor, keys: Tensor, seen: Tensor) -> Tensor:
    """[head, row]: query [head, dim], keys [row, kv_head, dim]."""
    wide = keys.repeat_interleave(query.shape[0] // keys.shape[1], 1)
    scores = torch.einsum("hd,rhd->hr", query, wide).float() * layer.scaling
    top = scores.masked_fill(seen == 0, float("-inf")).amax(-1, keepdim=True)
    weights = (scores - top).clamp(max=0).exp() * seen
    virtual = 0 if layer.sink_logits is None else (layer.sink_logits.float()[:, None] - top).exp()
    return weights / (weights.sum(-1, keepdim=True) + virtual)


class Plain:
    """All rows of a text made from the target's features, and chains from any anchor."""

    def __init__(self, drafter: Drafter, text: Text, windows: list[Window]) -> None:
        self.drafter, self.text, self.windows = drafter, text, windows
        self.rows: list[Step] = []

    def real(self, count: int | None = None) -> list[Step]:
        """The first `count` rows made from the target's features, all without it."""
        for row in range(len(self.rows), len(self.text.token_ids) - 1 if count is None else count):
            state = self.drafter.fuse(self.text.features[row : row + 1])[0]
            self.rows.append(self._row(row, self.rows, None, state, row, row))
        return self.rows

    def _row(
        self, row: int, before: list[Step], token: int | None, state: Tensor, position: int, anchor: int,
        values: list[Tensor] | None = None, weights: list[Tensor] | None = None,
    ) -> Step:  # fmt: skip
        """The row behind the rows `before`; values and weights replace its own."""
        drafter, made = self.drafter, Step(state)
        places = torch.arange(row + 1)

        def attend(layer: Any, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            j, window = layer.index, self.windows[layer.index]
            made.keys.append(key[0])
            made.values.append(value[0] if values is None else values[j])
            keys = torch.stack([*(step.keys[j] for step in before), made.keys[j]])
            seen = torch.ones(row + 1)
            if window.size is not None:
                seen = ((places > row - window.size) | (places < window.keep)).float()
            if window.fresh:
                seen = (places >= anchor).float()
            made.weights.append(softmax_row(layer, query[0], keys, seen) if weights is None else weights[j])
            mixed = torch.stack([*(step.values[j] for step in before), made.values[j]])
            wide = mixed.repeat_interleave(query.shape[1] // mixed.shape[1], 1)
            return torch.einsum("hr,rhd->hd", made.weights[j].to(wide.dtype), wide)[None]

        ids = self.text.token_ids[row + 1 : row + 2] if token is None else torch.tensor([token])
        carry, logits = drafter.finish(drafter.step(state[None], ids, torch.tensor([position]), attend))
        made.carry, made.logits = carry[0], logits[0]
        made.drafted = int(drafter.target_ids[int(logits[0].argmax())])
        return made

    def chain(
        self, anchor: int, depth: int, patch: Patch | None = None, own: list[Step] | None = None, feed: str = "text"
    ) -> list[Step]:
        """The steps of the chain; under a patch from step 2 on with the real rows' parts or those of `own`."""
        steps: list[Step] = []
        for step in range(1, depth + 1):
            row, real = anchor + step - 1, self.real()[anchor + step - 1]
            token = steps[-1].drafted if feed == "drafted" and step > 1 else None
            state = real.state if step == 1 else steps[-1].carry
            values = weights = None
            if patch is not None and own is not None and step > 1:
                mine = own[step - 1]
                state = {"own": mine.state, "real": real.state, "resized": resized(mine.state, real.state)}[patch.state]
                values = real.values if patch.values == "real" else mine.values
                weights = real.weights if patch.pattern == "real" else mine.weights
            position = anchor + (step - 1) * self.drafter.config.position_increment
            steps.append(self._row(row, [*self.rows[:anchor], *steps], token, state, position, anchor, values, weights))
        return steps


def resized(direction: Tensor, size: Tensor) -> Tensor:
    return direction * size.float().norm() / direction.float().norm()


def grown_text(drafter: Drafter, length: int = 22, prompt_length: int = 8, seed: int = 1, share: float = 0.75) -> Text:
    """Random features; a `share` of the tokens of the continuation is what the row of their features drafts, so that chains get
    somewhere."""
    config = drafter.config
    # NumPy's numbers are the same whatever torch's default dtype is.
    generator = np.random.default_rng(seed)
    width = config.num_aux * config.target_hidden_size if config.feature_source == "aux" else config.target_hidden_size
    features = torch.from_numpy(generator.standard_normal((length, width))).to(torch.get_default_dtype())
    # Close to one another, so that the state which a chain carries is often good enough.
    features = features[:1] + 0.5 * features
    ids = torch.from_numpy(generator.integers(0, config.vocab_size, length))
    text = Text(ids, prompt_length, features)
    plain = Plain(drafter, text, drafter.windows)
    for row in range(prompt_length - 2, length - 2):
        if generator.random() < share:
            ids[row + 2] = plain.real(row + 1)[row].drafted
    return text
