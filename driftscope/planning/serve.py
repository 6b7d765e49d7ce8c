"""A real greedy loop of drafter and target with KV caches, batch 1: the proof beside the prediction, not an engine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from driftscope.chain.pair import Pair
from driftscope.drafter.argmax import largest
from driftscope.drafter.attention import Prefix, causal_attention
from driftscope.errors import DriftscopeError
from driftscope.planning.clock import clock
from driftscope.planning.kv import CachedTarget


@dataclass(frozen=True)
class Served:
    """One text, decoded. Times are without the prefill of target and drafter."""

    tokens: list[int]
    """Behind the prompt, the first of which the prefill gives."""
    seconds: float
    rounds: int

    @property
    def timed(self) -> int:
        """Tokens that took the time: all but the first."""
        return len(self.tokens) - 1


class Loop:
    """Decodes prompts with and without the drafter. Used as a context, within which the target's states are read by hooks."""

    def __init__(self, pair: Pair) -> None:
        self.pair, self.drafter, self.target = pair, pair.drafter, pair.target
        config = pair.config
        if not config.carries or config.in_blocks:
            raise DriftscopeError("--serve runs drafters that draft step by step; this one makes all steps in one pass")
        if any(window.fresh for window in self.drafter.windows):
            raise DriftscopeError("--serve runs drafters that keep their keys; this one starts every round without any")
        self.now, self.read = clock(self.drafter.device)
        self.states: dict[int, Tensor] = {}
        """Boundary -> state of the latest forward; -1 is behind the final norm."""

    @contextmanager
    def reading(self) -> Iterator[Loop]:
        """Within it forwards leave the states that the drafter reads."""
        target, handles = self.target, []

        def keep(name: int, value: Any) -> None:
            self.states[name] = (value[0] if isinstance(value, tuple) else value)[0]

        for boundary in self._wanted():
            if boundary < 0:
                hook = target.final_norm.register_forward_hook(lambda _, args, out: keep(-1, out))
            elif boundary == target.num_layers:
                hook = target.final_norm.register_forward_pre_hook(lambda _, args, n=boundary: keep(n, args))
            else:
                layer = target.layers[boundary]
                hook = layer.register_forward_pre_hook(
                    lambda _, args, kwargs, n=boundary: keep(n, args or (kwargs["hidden_states"],)), with_kwargs=True
                )
            handles.append(hook)
        try:
            yield self
        finally:
            for handle in handles:
                handle.remove()

    def _wanted(self) -> tuple[int, ...]:
        config = self.pair.config
        if config.feature_source == "aux":
            assert config.aux_boundaries is not None
            return tuple(dict.fromkeys(config.aux_boundaries))
        return (-1,) if config.final_feature_normed else (self.target.num_layers,)

    def _features(self) -> Tensor:
        config = self.pair.config
        names = config.aux_boundaries if config.feature_source == "aux" else self._wanted()
        assert names is not None
        return torch.cat([self.states[name] for name in names], -1).to(self.drafter.device, self.drafter.dtype)

    def _next(self, tokens: Sequence[int], cached: CachedTarget) -> Tensor:
        """The most probable next token behind each of `tokens`."""
        return largest(cached.forward(torch.tensor([list(tokens)]))[0])

    @torch.no_grad()
    def plain(self, prompt: Sequence[int], count: int) -> Served:
        """`count` tokens, one forward each."""
        cached = CachedTarget(self.target)
        tokens = [int(self._next(prompt, cached)[-1])]
        begun = self.now()
        while len(tokens) < count:
            tokens.append(int(self._next(tokens[-1:], cached)[-1]))
        return Served(tokens, self.now() - begun, count - 1)

    @torch.no_grad()
    def speculative(self, prompt: Sequence[int], count: int, drafted: int) -> Served:
        """At least `count` tokens, `drafted` of them drafted every round."""
        cached = CachedTarget(self.target)
        text = [*prompt, int(self._next(prompt, cached)[-1])]
        rows = _Rows(self.drafter, len(prompt) + count + 2 * drafted + 2)
        start = len(prompt)
        rows.real(self._features(), text[1:])
        begun, rounds = self.now(), 0
        while len(text) - start < count:
            draft = rows.draft(drafted)
            verified = self._next([text[-1], *draft], cached).tolist()
            accepted = next((n for n, token in enumerate(draft) if token != verified[n]), drafted)
            new = verified[: accepted + 1]
            text += new
            cached.drop(drafted - accepted)
            rounds += 1
            if len(text) - start < count:
                rows.real(self._features()[: accepted + 1], new)
        return Served(text[start:], self.now() - begun, rounds)


class _Rows:
    """The drafter's rows with their keys and values: real ones, then those of the chain, which the next real ones replace."""

    def __init__(self, drafter: Any, room: int) -> None:
        self.drafter, self.room = drafter, room
        self.memory: list[Prefix] = []
        self.count = 0
        """Real rows."""
        self.state, self.first = torch.empty(0), 0

    def real(self, features: Tensor, tokens: Sequence[int]) -> None:
        """Append rows made from the target's features; the last of them is step 1 of the next chain."""
        rows = slice(self.count, self.count + len(features))
        self.count = rows.stop
        residual = self._step(self.drafter.fuse(features), tokens, rows, rows.start)
        self.state, logits = self.drafter.finish(residual[-1:])
        self.first = int(self._token(logits))

    def draft(self, steps: int) -> list[int]:
        """The tokens of a chain behind the last real row."""
        tokens, state = [self.first], self.state
        for step in range(1, steps):
            row = self.count - 1 + step
            place = self.count - 1 + step * self.drafter.config.position_increment
            residual = self._step(state, tokens[-1:], slice(row, row + 1), place)
            state, logits = self.drafter.finish(residual)
            tokens.append(int(self._token(logits)))
        return tokens

    def _token(self, logits: Tensor) -> Tensor:
        return self.drafter.target_ids[largest(logits)[0]]

    def _step(self, state: Tensor, tokens: Sequence[int], rows: slice, place: int) -> Tensor:
        device = self.drafter.device
        positions = torch.arange(place, place + rows.stop - rows.start, device=device)
        residual: Tensor = self.drafter.step(
            state, torch.tensor(tokens, device=device), positions, partial(self._attend, rows)
        )
        return residual

    def _attend(self, rows: slice, layer: Any, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        if layer.index == len(self.memory):
            self.memory.append(Prefix.like(key, value, self.room))
        own = self.memory[layer.index]
        own.keys[:, rows], own.values[:, rows] = key.transpose(0, 1), value.transpose(0, 1)
        mixed, _ = causal_attention(
            query, own, rows, self.drafter.windows[layer.index], scaling=layer.scaling, sink_logits=layer.sink_logits
        )
        return mixed
