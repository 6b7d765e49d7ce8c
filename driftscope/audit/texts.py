"""The target's own text, judged before any drafter: where it is garbage, nothing that a drafter does with it means anything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from math import log
from typing import Any

import torch
from torch import Tensor

from driftscope.captures.capture import Capture
from driftscope.captures.conditions import spread
from driftscope.captures.record import record
from driftscope.stats.intervals import MIN_PROMPTS
from driftscope.target.ends import TargetEnds
from driftscope.target.model import Target
from driftscope.target.prompts import load_prompts, tokenize_prompts

PROMPTS = 16
GAIN = 1.5
"""Nats by which a target must predict a prompt better than its tokens in another order. English under a model of 135M
parameters gives 9.5; tokens drawn at random give less than 0, that model with 1 added to every norm weight gives 0.7."""
LOOPS = 0.7
"""Share of the texts that may be loops: they are left out of the figures, and little else is left beyond it."""
MOST = 0.5
"""Share of the texts that may be the same as another prompt's."""
UNDECIDED = 0.5
"""Entropy of the target along its own greedy text, as a share of that of a uniform distribution."""
TIES = 0.25
"""Share of positions that may be near ties: a healthy target in one precision has few."""
_POSITIONS, _FEWEST, _ENGLISH = 64, 4, 8


@dataclass(frozen=True)
class Texts:
    """Means over prompts. A figure that could not be measured is None."""

    prompts: int
    prompt_gain: float | None
    """Nats by which the target predicts the tokens of the prompts better than the same tokens in another order, template
    left out."""
    entropy: float | None
    """Of the target along its own text, over that of a uniform distribution."""
    loops: float
    """Share of the text inside repetition loops."""
    repeated: float
    """Share of texts that equal another prompt's."""
    near_ties: float
    """Share of positions."""
    reason: str = ""
    """Why nothing can be told from these texts; empty where something can."""

    def to_dict(self) -> dict[str, Any]:
        """As in `run.json`."""
        return asdict(self)


def judge_texts(target: Target, captures: Sequence[Capture]) -> Texts | None:
    """Judge what the target wrote, from its captures alone unless something is wrong.

    Only where it does not predict the prompts, a few texts of ordinary English are run to tell broken targets from prompts
    that are no text. None with fewer than 12 captures, too few to withhold a verdict for.
    """
    if len(captures) < MIN_PROMPTS:
        return None
    found = _figures(target, captures)
    return replace(found, reason=_reason(target, found))


def withheld_texts(target: Target, captures: Sequence[Capture]) -> str:
    """Why nothing can be told from these texts; empty where something can, or where they are too few to say."""
    found = judge_texts(target, captures)
    return "" if found is None else found.reason


def _figures(target: Target, captures: Sequence[Capture]) -> Texts:
    chosen = spread(captures, PROMPTS)
    prompts = [record.token_ids[: record.prompt_length].tolist() for record in captures]
    first, last = _shared(prompts), _shared([list(reversed(ids)) for ids in prompts])
    finals = [record for record in chosen if bool(record.final[-1].isfinite().all())]
    gains = [
        gain
        for record in finals
        if (gain := prompt_gain(target, record.final, record.token_ids, first, record.prompt_length - last)) is not None
    ]
    entropies = [_entropy(target, record) for record in finals if record.new_tokens > 1]
    written = [record for record in captures if record.new_tokens > 0]
    answers = Counter(tuple(record.token_ids[record.prompt_length :].tolist()) for record in written)
    same = sum(count for answer, count in answers.items() if count > 1 and len(answer) >= _FEWEST)
    return Texts(
        prompts=len(captures),
        prompt_gain=_mean(gains) if len(gains) >= MIN_PROMPTS // 2 else None,
        entropy=_mean(entropies),
        loops=_mean([float(record.loop[record.prompt_length :].float().mean()) for record in written]) or 0.0,
        repeated=same / len(written) if written else 0.0,
        near_ties=_mean([float(r.near_tie[r.prompt_length - 1 : -1].float().mean()) for r in written]) or 0.0,
    )


def prompt_gain(target: Target, final: Tensor, token_ids: Tensor, first: int, stop: int) -> float | None:
    """Nats by which final states [T, H] predict tokens first .. stop - 1 better than those tokens in another order.

    None for fewer than 4 tokens. Every token is compared with every other place, which is the mean over all orders.
    """
    places = torch.arange(max(first, 1), stop)[:_POSITIONS]
    if len(places) < _FEWEST:
        return None
    tokens = token_ids[places]
    chances = target.head(final[places - 1]).float().log_softmax(-1).cpu()[:, tokens]
    own, count = chances.diagonal().sum(), len(places)
    return float(own / count - (chances.sum() - own) / (count * (count - 1)))


def _entropy(target: Target, record: Capture) -> float:
    places = torch.arange(record.prompt_length - 1, record.length - 1)[:_POSITIONS]
    chances = target.head(record.final[places]).float().log_softmax(-1)
    return float(-(chances.exp() * chances).sum(-1).mean()) / log(chances.shape[-1])


def _reason(target: Target, found: Texts) -> str:
    gain = found.prompt_gain
    if gain is not None and gain < GAIN:
        seen = f"predicts the prompts no better than their tokens in another order ({gain:+.1f} nats; text gives 5 or more)"
        english = _english(target)
        if english is None:
            return f"target {target.name} {seen}: another --target, or --prompts that are text"
        if english < GAIN:
            return (
                f"target {target.name} {seen}, nor ordinary English ({english:+.1f} nats): it is broken, not loaded as it was"
                " trained, or made for other text (--target, --prompts)"
            )
        return (
            f"target {target.name} {seen}, but ordinary English ({english:+.1f} nats): the prompts are no text that it"
            " knows (--prompts)"
        )
    if found.entropy is not None and found.entropy > UNDECIDED:
        return (
            f"target {target.name} does not know what it writes: along its own text its entropy is {found.entropy:.0%} of"
            " that of a blind guess (--target, --prompts)"
        )
    if found.loops > LOOPS:
        return f"{found.loops:.0%} of what target {target.name} writes are repetition loops (--prompts, --target)"
    if found.repeated > MOST:
        return (
            f"{found.repeated:.0%} of the texts of target {target.name} are the same as another prompt's (--prompts,"
            " --chat-template)"
        )
    if found.near_ties > TIES:
        return (
            f"at {found.near_ties:.0%} of positions target {target.name} prefers another token than the one that it wrote:"
            " its passes do not agree with each other (--dtype float32)"
        )
    return ""


def _english(target: Target) -> float | None:
    """`prompt_gain` on a few of the shipped prompts; None where of the target only the ends are loaded."""
    if isinstance(target, TargetEnds):
        return None
    # As plain text: a broken target may be so by its template.
    asked = [
        replace(prompt, text=prompt.messages[-1].content, messages=None)
        for prompt in load_prompts(None)
        if prompt.messages
    ]
    kept, _ = tokenize_prompts(spread(asked, _ENGLISH), target.tokenizer, max_tokens=256, min_tokens=2)
    gains = []
    for prompt in kept:
        ids = torch.tensor(prompt.token_ids)
        gain = prompt_gain(target, record(target, ids.tolist(), ()).final, ids, 1, len(ids))
        gains += [gain] if gain is not None else []
    return _mean(gains)


def _shared(texts: Sequence[Sequence[int]]) -> int:
    """Tokens with which all texts begin: those of the template."""
    count = 0
    for column in zip(*texts, strict=False):
        if len(set(column)) > 1:
            break
        count += 1
    return count


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
