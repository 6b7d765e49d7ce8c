"""The positive control of a probe: does the drafter predict these texts better than drafters that know nothing of them?

A drafter at chance has no drift to find: its norms and its attention are those of noise, and look as calm as a healthy one's.
Step 1 alone is measured, fed from the target, so it works for every kind of drafter and costs four passes over a few prompts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from driftscope.audit.controls import Control, judged, scrambled
from driftscope.audit.decide import Limits
from driftscope.captures.capture import Capture
from driftscope.captures.conditions import spread
from driftscope.chain.block import chain_of
from driftscope.chain.chain import Text, chain_inputs
from driftscope.chain.drafter_inputs import drafter_text
from driftscope.chain.observe import observe
from driftscope.chain.prefix import prefix_pass
from driftscope.drafter import Drafter, build_drafter
from driftscope.drafter.argmax import largest
from driftscope.stats.intervals import MIN_PROMPTS

if TYPE_CHECKING:
    from driftscope.chain.pair import Pair

PROMPTS, ANCHORS = 16, 8
_SPAN = 64
"""Anchors lie among the first so many of a continuation, so that the prefix pass stays short."""
_FLOOR = 1e-3
"""Weight of a uniform distribution mixed into the drafter's: bounds the loss, also outside the draft vocabulary."""


@dataclass(frozen=True)
class PositiveControl:
    """What the drafter scores at step 1 beside its negative controls, means over prompts."""

    prompts: int
    anchors: int
    loss: float
    """Nats on the text's token, a uniform 0.1% mixed in."""
    agreement: float
    """Share of anchors whose most probable token is the text's."""
    controls: tuple[Control, ...]

    @property
    def lost(self) -> tuple[str, ...]:
        """Names of the controls that the drafter does not beat."""
        return tuple(control.name for control in self.controls if not control.beaten)

    def to_dict(self) -> dict[str, Any]:
        """As in `run.json`."""
        return {**asdict(self), "controls": [asdict(control) for control in self.controls], "lost": list(self.lost)}


def positive_control(pair: Pair, captures: Sequence[Capture], limits: Limits | None = None) -> PositiveControl | None:
    """Measure the drafter and its controls on at most 16 of the captures, 8 anchors each outside loops.

    Args:
        pair: drafter and target; of the target only embedding and head are used.
        captures: texts with the features that the drafter reads.

    Returns:
        None where fewer than 12 prompts have anchors, too few to tell a drafter from its controls.
    """
    kept = [(record, places) for record in captures if len(places := _anchors(record))]
    if len(kept) < MIN_PROMPTS:
        return None
    kept = spread(kept, PROMPTS)
    drafter, config = pair.drafter, pair.config
    texts = [drafter_text(config, record, device=drafter.device, dtype=drafter.dtype) for record, _ in kept]
    anchors = [places.to(drafter.device) for _, places in kept]
    others = [_other_features(text, texts[(i + 1) % len(texts)]) for i, text in enumerate(texts)]
    shown = (texts, others, [_shuffled(text) for text in texts])
    scores = [_scores(drafter, part, texts, anchors) for part in shown]
    permuted = build_drafter(
        config,
        scrambled(pair.checkpoint.weights),
        target_embedding=pair.target.embedding_weight,
        target_head=pair.target.head_weight,
        device=drafter.device,
        dtype=drafter.dtype,
    )
    scores.append(_scores(permuted, texts, texts, anchors))
    (loss, agreement), *controls = scores
    return PositiveControl(
        prompts=len(kept),
        anchors=sum(map(len, anchors)),
        loss=float(loss.mean()),
        agreement=float(agreement.mean()),
        controls=tuple(judged(loss, agreement, controls, limits or Limits())),
    )


def _anchors(record: Capture) -> Tensor:
    """Anchors whose next drafted token lies in the text and outside loops, at most ANCHORS of them, evenly spread."""
    places = torch.arange(record.prompt_length - 1, record.length - 2)
    places = places[~record.loop[places + 2]][:_SPAN]
    if len(places) <= ANCHORS:
        return places
    return places[torch.linspace(0, len(places) - 1, ANCHORS).round().long()]


def _other_features(text: Text, source: Text) -> Text:
    """The text with another prompt's features at the same positions: right in size, wrong in content."""
    rows = torch.arange(len(text.features), device=text.features.device) % len(source.features)
    return replace(text, features=source.features[rows])


def _shuffled(text: Text) -> Text:
    """The text with its tokens in another order, beside features in theirs."""
    order = torch.randperm(len(text.token_ids), generator=torch.Generator().manual_seed(0))
    return replace(text, token_ids=text.token_ids[order.to(text.token_ids.device)])


def _scores(
    drafter: Drafter, shown: Sequence[Text], texts: Sequence[Text], anchors: Sequence[Tensor]
) -> tuple[np.ndarray, np.ndarray]:
    """Loss and agreement [prompt] at step 1 of a drafter that is shown `shown`, against the tokens of `texts`."""
    from nnsight import NNsight

    model = NNsight(chain_of(drafter))
    draft_ids = torch.full((drafter.config.vocab_size,), -1, device=drafter.device)
    draft_ids[drafter.target_ids] = torch.arange(len(drafter.target_ids), device=drafter.device)
    losses, agreements = [], []
    for seen, text, places in zip(shown, texts, anchors, strict=True):
        rows = int(places[-1]) + 1
        passed = prefix_pass(drafter, seen, drafter.windows, sinks=(), horizon=1, rows=rows)
        inputs = chain_inputs(seen, passed.prefix, drafter.windows, anchors=places, depth=1, feed="text")
        wanted = text.token_ids[places + 2]

        def measure(step: int, rows: slice, values: dict[str, Tensor], wanted: Tensor = wanted) -> dict[str, Tensor]:
            own = values["logits"].float().softmax(-1)
            index = draft_ids[wanted[rows]]
            chance = own.gather(1, index.clamp(min=0)[:, None])[:, 0] * (index >= 0)
            chance = (1 - _FLOOR) * chance.nan_to_num(0.0).double() + _FLOOR / drafter.config.vocab_size
            return {"loss": -chance.log(), "agree": (drafter.target_ids[largest(own)] == wanted[rows]).double()}

        (found,) = observe(model, inputs, measure, sites=("logits",))
        losses.append(float(found["loss"].mean()))
        agreements.append(float(found["agree"].mean()))
    return np.array(losses), np.array(agreements)
