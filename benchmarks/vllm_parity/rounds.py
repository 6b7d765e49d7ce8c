"""Rounds of speculative decoding, as an engine served them and as driftscope walks them, and where they differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from driftscope.stats.acceptance import served_walk

NEAR_TIE = 1e-3
"""Two logits closer than this may change places with the order of summation in float32."""


@dataclass(frozen=True)
class Round:
    """One draft and how much of it was accepted."""

    anchor: int
    """Position t of the row that step 1 runs; the draft continues the text after position t + 1."""
    drafted: tuple[int, ...]
    accepted: int


@dataclass(frozen=True)
class Chains:
    """driftscope's chains over one text, one at every anchor from P-1 on."""

    prompt_length: int
    drafted: np.ndarray
    """Int[anchor, step]"""
    runner_up: np.ndarray
    """Int[anchor, step]: the token with the second largest logit."""
    gap: np.ndarray
    """[anchor, step]: by how much the drafted token's logit is larger."""
    accepted: np.ndarray
    """Int[anchor]: drafted tokens that equal the text up to the first that does not."""

    def rounds(self) -> list[Round]:
        """Those that an engine serves, from the first anchor on."""
        walk = served_walk(self.accepted, self.drafted.shape[1])
        return [
            Round(self.prompt_length - 1 + place, tuple(self.drafted[place].tolist()), accepted)
            for place, accepted in zip(walk.visited.tolist(), walk.accepted.tolist(), strict=True)
        ]


@dataclass(frozen=True)
class Difference:
    """The first step of a round at which two tokens were drafted."""

    prompt: str
    anchor: int
    step: int
    engine: int
    driftscope: int
    gap: float
    """By how much driftscope's token is ahead of the one behind it, in logits."""
    near_tie: bool
    """Whether the engine drafted that second token and the gap is within rounding."""


@dataclass
class Agreement:
    """What came of the comparison, over prompts."""

    prompts: int = 0
    rounds_engine: int = 0
    rounds_driftscope: int = 0
    rounds_equal: int = 0
    """Same anchor, same draft, same accepted tokens."""
    prompts_equal: int = 0
    """Prompts all of whose rounds are equal."""
    drafted: int = 0
    """Drafted tokens of rounds that both made."""
    drafted_equal: int = 0
    accepted_engine: list[int] = field(default_factory=list)
    """Per position, as the engine counts: rounds that accepted at least so many."""
    accepted_driftscope: list[int] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)

    @property
    def exact(self) -> bool:
        return (
            self.rounds_engine == self.rounds_driftscope == self.rounds_equal > 0
            and self.drafted == self.drafted_equal
            and self.accepted_engine == self.accepted_driftscope
        )

    @property
    def explained(self) -> bool:
        """Whether nothing differs but from near ties on."""
        lost = self.prompts - self.prompts_equal
        return all(d.near_tie for d in self.differences) and len({d.prompt for d in self.differences}) == lost

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "exact": self.exact}


def engine_rounds(served: Mapping[str, Any], prompt_length: int, tokens: int) -> list[Round]:
    """The rounds that start within the first `tokens` tokens of a served text.

    served: `text`, `rounds` of {drafted, emitted}, and `accepted_per_round` as the engine reports it by itself. Raises
    ValueError where these contradict each other.
    """
    name, text = served["id"], served["text"]
    found, place = [], 1
    if len(served["rounds"]) != len(served["accepted_per_round"]):
        raise ValueError(
            f"{name}: {len(served['rounds'])} rounds watched, {len(served['accepted_per_round'])} reported"
        )
    for made, reported in zip(served["rounds"], served["accepted_per_round"], strict=True):
        drafted, emitted = made["drafted"], made["emitted"]
        accepted = len(emitted) - 1
        at = f"{name}: the round after token {place}"
        if accepted != reported:
            raise ValueError(f"{at} emitted {accepted} drafted tokens, the engine reports {reported}")
        if drafted[:accepted] != emitted[:accepted] or emitted[accepted:] == drafted[accepted : accepted + 1]:
            raise ValueError(f"{at} drafted {drafted} and emitted {emitted}, which is not its verification")
        within = text[place : place + accepted + 1]
        if within != emitted[: len(within)]:
            raise ValueError(f"{at} emitted {emitted}, the text has {within}")
        found.append(Round(prompt_length - 2 + place, tuple(drafted), accepted))
        place += accepted + 1
    if place < len(text):
        raise ValueError(f"{name}: rounds end at token {place} of {len(text)}")
    return [made for made in found if made.anchor < prompt_length - 1 + tokens]


def per_position(rounds: Sequence[Round], depth: int) -> list[int]:
    """Rounds that accepted at least 1, 2, ... depth tokens."""
    return [sum(made.accepted >= size for made in rounds) for size in range(1, depth + 1)]


def check_counters(served: Mapping[str, Any], depth: int) -> None:
    """Raise ValueError unless the counters of /metrics are those of all rounds, to the end of every text."""
    accepted = [count for prompt in served["served"] for count in prompt["accepted_per_round"]]
    wanted = {
        "num_drafts": len(accepted),
        "num_draft_tokens": depth * len(accepted),
        "num_accepted_tokens": sum(accepted),
        "num_accepted_tokens_per_pos": [sum(n >= size for n in accepted) for size in range(1, depth + 1)],
    }
    if served["counters"] != wanted:
        raise ValueError(f"the engine's counters are {served['counters']}, its rounds give {wanted}")


def compare_prompt(total: Agreement, name: str, engine: Sequence[Round], chains: Chains) -> None:
    """Add one prompt to `total`. Rounds are matched by anchor; after a difference only some of them may be shared."""
    depth = chains.drafted.shape[1]
    ours = chains.rounds()
    by_anchor = {made.anchor: made for made in ours}
    equal = 0
    for theirs in engine:
        mine = by_anchor.get(theirs.anchor)
        if mine is None:
            continue
        same = [a == b for a, b in zip(theirs.drafted, mine.drafted, strict=True)]
        total.drafted += depth
        total.drafted_equal += sum(same)
        equal += theirs == mine
        if not all(same):
            total.differences.append(_difference(name, theirs, chains, same.index(False)))
    total.prompts += 1
    total.rounds_engine += len(engine)
    total.rounds_driftscope += len(ours)
    total.rounds_equal += equal
    total.prompts_equal += equal == len(engine) == len(ours)
    total.accepted_engine = _added(total.accepted_engine, per_position(engine, depth))
    total.accepted_driftscope = _added(total.accepted_driftscope, per_position(ours, depth))


def _difference(name: str, theirs: Round, chains: Chains, step: int) -> Difference:
    at = theirs.anchor - chains.prompt_length + 1, step
    gap = float(chains.gap[at])
    token = theirs.drafted[step]
    tied = gap < NEAR_TIE and token == int(chains.runner_up[at])
    return Difference(name, theirs.anchor, step + 1, token, int(chains.drafted[at]), gap, tied)


def _added(first: list[int], second: list[int]) -> list[int]:
    return [a + b for a, b in zip(first or [0] * len(second), second, strict=True)]
