"""Walks without a model: texts whose drafts are accepted with planted chances, some prompts easier than others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from driftscope.from_engines.counters.model import Counters, counted
from driftscope.serving.reading import DECLARED, Reading
from driftscope.stats.acceptance import served_walk
from driftscope.stats.walks import PromptWalk, Walks

KINDS = ("chat", "code", "reasoning", "extraction")
SOUND = (0.45, 0.40, 0.38)
WRONG_CARRY = (0.45, 0.22, 0.15)
WRONG_LAYERS = (0.30, 0.36, 0.35)


def walks(
    chances: Sequence[float],
    *,
    prompts: int = 24,
    new_tokens: int = 96,
    seed: int = 0,
    easier: float = 0.0,
    spread: float = 0.2,
) -> Walks:
    """`chances`: of each position, given the one before it. easier: added to every logit; spread: its SD between prompts."""
    rng = np.random.default_rng(seed)
    made = []
    for number in range(prompts):
        logits = np.log(np.array(chances) / (1 - np.array(chances))) + easier + spread * rng.normal()
        hits = rng.random((new_tokens - 1, len(chances))) < 1 / (1 + np.exp(-logits))
        accepted = np.minimum(hits.cumprod(1).sum(1), new_tokens - 1 - np.arange(new_tokens - 1))
        made.append(PromptWalk(f"p{number}", KINDS[number % len(KINDS)], new_tokens, accepted.astype(np.int64)))
    return Walks(len(chances), tuple(made))


def counters(served: Walks, *, k: int | None = None, tokens: int | None = None) -> Counters:
    """What an engine counts that serves these walks to the end of every text."""
    k = k or served.depth
    rounds = [served_walk(p.accepted[: (tokens or p.new_tokens) - 1], k).accepted for p in served.prompts]
    lengths = np.concatenate(rounds)
    positions = [int((lengths >= size).sum()) for size in range(1, k + 1)]
    return counted(
        "planted",
        engine="vllm",
        source="planted",
        drafts=len(lengths),
        per_position=positions,
        bonus="none",
        requests=len(served.prompts),
    )


def readings(seed: int = 0, prompts: int = 24) -> list[Reading]:
    """The declared one, and three others over the same texts; the last one changes nothing."""

    def other(switch: str, alternative: str, chances: Sequence[float], add: int) -> Reading:
        made = walks(chances, seed=seed + add, prompts=prompts)
        return Reading(f"{switch}: {alternative}", switch, "declared", alternative, "DS201", walks=made)

    return [
        Reading(DECLARED, walks=walks(SOUND, seed=seed, prompts=prompts)),
        other("carry", "pre", WRONG_CARRY, 1),
        other("aux_boundaries", "3, 16, 28 (all +1)", WRONG_LAYERS, 2),
        other("rms_norm_eps", "1e-05", SOUND, 0),
        Reading("head: own", "head", "target", "own", "DS207", reason="no lm_head.weight is stored"),
    ]
