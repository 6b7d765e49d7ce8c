"""A drafter as the judge: with the states that it was trained on it predicts the text better than with their neighbours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from driftscope.captures.capture import Capture
from driftscope.chain.chain import Text, chain_step
from driftscope.chain.drafter_inputs import drafter_features, needed_boundaries
from driftscope.chain.prefix_keys import prefix_keys
from driftscope.checkpoints.config import DrafterConfig
from driftscope.drafter import Drafter
from driftscope.drafter.attention import ChainMemory
from driftscope.errors import DriftscopeError

TEXTS, ROWS = 16, 192
SURE = 3.0
"""Standard errors of the mean over texts that a difference must exceed."""
LEAST = 0.02
"""Nats that a difference must exceed."""


@dataclass(frozen=True)
class Trial:
    """One way of giving the states to the drafter."""

    name: str
    fix: str
    shift: int = 0
    """Added to the boundaries that it reads."""
    other: bool = False
    """The negative control: the states of another text."""


TRIALS = (
    Trial("one boundary later", "the ids are one too low: --ids layer-output, or --layers", shift=1),
    Trial("one boundary earlier", "the ids are one too high: --ids boundary, or --layers", shift=-1),
)
# Positions are not tried: states of the next position know the token that is drafted, and are always better.
_CONTROL = Trial("of another text", "", other=True)


def check_with_drafter(drafter: Drafter, config: DrafterConfig, captures: Sequence[Capture]) -> list[str]:
    """Compare the drafter's loss on the text, from the states as they are placed and as they would be if a claim were off by
    one. A line with what was seen; raises DriftscopeError where another way is better beyond doubt.

    Shifts of the boundaries are tried where the captures hold those boundaries.
    """
    if captures:
        _check_boundaries(config, captures[0])
    chosen = [record for record in captures if record.new_tokens > 2][:TEXTS]
    if len(chosen) < 2:
        return [f"the drafter's loss says nothing: {len(chosen)} texts, at least 2 are needed"]
    own = losses(drafter, config, chosen, Trial("as declared", ""))
    for trial in TRIALS:
        if trial.shift and not all(_reads(config, trial.shift) <= set(record.boundaries) for record in chosen):
            continue
        gain = own - losses(drafter, config, chosen, trial)
        if _beyond_doubt(gain):
            raise DriftscopeError(
                f"the drafter predicts the text better from the states {trial.name}: {own.mean() - gain.mean():.2f} nats a"
                f" token instead of {own.mean():.2f}; {trial.fix}"
            )
    control = losses(drafter, config, chosen, _CONTROL)
    if not _beyond_doubt(control - own):
        raise DriftscopeError(
            f"the drafter predicts the text no better from its states ({own.mean():.2f} nats a token) than from those of"
            f" another text ({control.mean():.2f}): other boundaries, another target, or not its drafter"
        )
    return [
        f"the drafter's text-fed loss is {own.mean():.2f} nats a token, from another text's states {control.mean():.2f}"
    ]


def _check_boundaries(config: DrafterConfig, record: Capture) -> None:
    needed = set(needed_boundaries(config, len(record.rms) - 1))
    if needed <= set(record.boundaries):
        return
    fixes = (1, "one more each: are the ids boundaries, --ids boundary?"), (-1, "one less each: --ids layer-output?")
    hint = next((f"; they are {fix}" for by, fix in fixes if {b + by for b in needed} <= set(record.boundaries)), "")
    held, wanted = (", ".join(map(str, sorted(part))) or "none" for part in (record.boundaries, needed))
    raise DriftscopeError(f"the states are boundaries {held}, and the drafter reads {wanted}{hint}")


def _beyond_doubt(gain: np.ndarray) -> bool:
    error = gain.std(ddof=1) / np.sqrt(len(gain))
    return bool(gain.mean() > max(LEAST, SURE * error))


def _reads(config: DrafterConfig, shift: int) -> set[int]:
    if config.feature_source != "aux":
        return {-1}
    return {b + shift for b in config.aux_boundaries or ()}


def losses(drafter: Drafter, config: DrafterConfig, captures: Sequence[Capture], trial: Trial) -> np.ndarray:
    """Text-fed cross-entropy of step 1 over the answers' tokens that the draft vocabulary holds, nats, mean by text."""
    found = []
    for record, features in zip(captures, _features(config, captures, trial), strict=True):
        rows = min(record.length - 2, record.prompt_length + ROWS)
        text = Text(
            record.token_ids[: rows + 2].to(drafter.device),
            record.prompt_length,
            features[: rows + 2].to(device=drafter.device, dtype=drafter.dtype),
        )
        logits = first_step(drafter, text, rows)
        wanted = text.token_ids[record.prompt_length + 1 : rows + 2]
        ids = torch.full((drafter.config.vocab_size,), -1, device=wanted.device)
        ids[drafter.target_ids] = torch.arange(len(drafter.target_ids), device=wanted.device)
        known = ids[wanted] >= 0
        if not known.any():
            known, logits = torch.ones_like(known), torch.zeros_like(logits)
        loss = torch.nn.functional.cross_entropy(logits[known].float(), ids[wanted][known].clamp(min=0))
        found.append(float(loss))
    return np.array(found)


def _features(config: DrafterConfig, captures: Sequence[Capture], trial: Trial) -> Iterator[Tensor]:
    read = config
    if trial.shift:
        moved = tuple(b + trial.shift for b in config.aux_boundaries or ())
        read = config.replace("user", "a check", aux_boundaries=moved)
    for place, record in enumerate(captures):
        source = captures[(place + 1) % len(captures)] if trial.other else record
        features = drafter_features(read, source)
        yield features[torch.arange(record.length) % len(features)]


@torch.no_grad()
def first_step(drafter: Drafter, text: Text, rows: int) -> Float[Tensor, "anchor vocab"]:
    """Logits of step 1 of the chains at rows P-1 .. `rows` - 1."""
    anchors = torch.arange(text.prompt_length - 1, rows, device=text.features.device)
    states = drafter.fuse(text.features[:rows])
    prefix = prefix_keys(drafter, states[None], text.token_ids[None, 1 : rows + 1])
    memory = ChainMemory(prefix, anchors[None], drafter.windows)
    residual = chain_step(drafter, memory, states[anchors], text.token_ids[anchors + 1], anchors)
    logits: Tensor = drafter.finish(residual)[1]
    return logits
