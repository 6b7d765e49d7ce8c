"""What probes will cost: one clean chain and a few target steps are timed here and now, and scaled."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from driftscope.captures.capture import Capture
from driftscope.captures.conditions import PlannedText
from driftscope.captures.record import continue_greedily, record
from driftscope.chain.drafter_inputs import needed_boundaries
from driftscope.chain.pair import Pair
from driftscope.chain.prompt_chains import Settings, Subject
from driftscope.probes import ConditionProbe, Probe

USUAL_PROMPT = 100
"""Tokens of a usual prompt with its chat template."""
MEASURED_ROWS = 1024
"""Longer texts are not timed but scaled from this length."""
_RECORDED, _BATCH, _DECODED = 128, 8, 4


@dataclass(frozen=True)
class Cost:
    """Of one probe over a whole run, in seconds. Probes that share a measurement have the whole cost each."""

    probe: str
    shard: str
    chains: float
    """Drafter: prefix passes and chains."""
    captures: float
    """Target: texts of the probe's own, where the cache does not hold them yet; without the run's prompts."""

    @property
    def seconds(self) -> float:
        return self.chains + self.captures


def estimate(
    pair: Pair,
    probes: Sequence[Probe],
    settings: Settings | None = None,
    *,
    prompts: int = 48,
    max_new_tokens: int = 128,
) -> list[Cost]:
    """The cost of each probe in a run of `prompts` prompts, from timings on made-up texts (seconds of work)."""
    settings = settings or Settings()
    timings = _Timings(pair, settings, max_new_tokens)
    costs = []
    for item in probes:
        if isinstance(item, ConditionProbe):
            planned = item.planned(prompts, settings)
            chains = sum(text.count * text.chains * timings.chains(text) for text in planned)
            captures = sum(text.count * timings.captures(text) for text in planned)
        else:
            chains, captures = prompts * item.cost(settings.depth) * timings.chains(PlannedText(1, 1)), 0.0
        costs.append(Cost(item.name, item.shard, chains, captures))
    return costs


def told(costs: Sequence[Cost]) -> str:
    """The estimate in one line."""
    parts = {cost.shard: cost for cost in costs}
    names = {shard: ", ".join(cost.probe for cost in costs if cost.shard == shard) for shard in parts}
    each = [f"{names[shard]} {duration(cost.seconds)}" for shard, cost in parts.items()]
    own = sum(cost.captures for cost in parts.values())
    note = f" (up to {duration(own)} of it captures that the cache may hold)" if own else ""
    return f"estimate: {duration(sum(cost.seconds for cost in parts.values()))}{note}: {'; '.join(each)}"


def duration(seconds: float) -> str:
    """`40 s`, `12 min`, `3.5 h`."""
    if seconds < 90:
        return f"{max(seconds, 1):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


@dataclass
class _Timings:
    pair: Pair
    settings: Settings
    max_new_tokens: int
    _chains: dict[tuple[int, int], float] = field(default_factory=dict)
    _target: tuple[float, float] | None = None

    def chains(self, text: PlannedText) -> float:
        """Prefix pass and chains over one text. The passes of a text are not separated, so that several sets of chains
        over it come out dearer than they are."""
        prompt, new = self._size(text)
        rows = min(prompt + new, MEASURED_ROWS)
        available = max(new - self.settings.horizon, 1)
        anchors = min(text.anchors or self.settings.anchors or available, available)
        if (rows, anchors) not in self._chains:
            self._chains[rows, anchors] = self._time_chains(rows, anchors)
        return self._chains[rows, anchors] * max(1.0, (prompt + new) / rows) ** 2

    def captures(self, text: PlannedText) -> float:
        """Continuation and recording of one text."""
        prompt, new = self._size(text)
        if self._target is None:
            self._target = self._time_target()
        per_token, per_new_token = self._target
        return (2 * prompt + new) * per_token + new * per_new_token

    def _size(self, text: PlannedText) -> tuple[int, int]:
        prompt = USUAL_PROMPT if text.prompt_tokens is None else text.prompt_tokens
        return prompt, self.max_new_tokens if text.new_tokens is None else text.new_tokens

    def _time_chains(self, rows: int, anchors: int) -> float:
        record = self._made_up(rows, rows - min(anchors + self.settings.horizon, rows - 2))

        def run() -> None:
            Subject(self.pair, record, self.settings).clean("drafted")

        return _seconds(run, self.pair.drafter.device)

    def _made_up(self, rows: int, prompt_length: int) -> Capture:
        target = self.pair.target
        generator = torch.Generator().manual_seed(0)

        def state() -> torch.Tensor:
            return torch.randn(rows, target.hidden_size, generator=generator)

        return Capture(
            prompt_id="made-up",
            category="",
            token_ids=torch.randint(0, target.vocab_size, (rows,), generator=generator),
            prompt_length=prompt_length,
            final=state(),
            boundaries={b: state() for b in needed_boundaries(self.pair.config, target.num_layers)},
            rms=torch.ones(target.num_layers + 1, rows),
            near_tie=torch.zeros(rows, dtype=torch.bool),
            loop=torch.zeros(rows, dtype=torch.bool),
            stopped=False,
        )

    def _time_target(self) -> tuple[float, float]:
        """Seconds per token of one forward, and per new token of a batch of prompts."""
        target = self.pair.target
        room = target.max_positions or 1 << 30
        recorded = min(_RECORDED, room)
        ids = (torch.arange(recorded + 1) * 7919 % target.vocab_size).tolist()
        forward = _seconds(lambda: record(target, ids[:recorded], ()), target.device) / recorded
        texts: list[list[int]] = []
        prompt = ids[: min(16, room - _DECODED)]

        def decode() -> None:
            texts[:] = continue_greedily(target, [prompt] * _BATCH, _DECODED)

        seconds = _seconds(decode, target.device)
        made = max(1, max(len(text) for text in texts)) * _BATCH
        return forward, max(0.0, seconds - len(prompt) * _BATCH * forward) / made


def _seconds(work: Callable[[], Any], device: torch.device) -> float:
    """The shorter of two runs: the first one warms up."""
    taken = []
    for _ in range(2):
        begun = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        taken.append(time.perf_counter() - begun)
    return min(taken)
