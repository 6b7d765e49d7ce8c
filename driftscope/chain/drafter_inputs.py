"""From the record of a prompt to what the drafter reads."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from driftscope.captures.capture import Capture
from driftscope.chain.chain import Text
from driftscope.checkpoints.config import DrafterConfig
from driftscope.errors import TargetError


def needed_boundaries(config: DrafterConfig, num_layers: int) -> tuple[int, ...]:
    """The target boundaries that a drafter reads beside the final hidden state, ascending."""
    if config.feature_source == "aux":
        assert config.aux_boundaries is not None, "fit_to_target fills the boundaries"
        return tuple(sorted(set(config.aux_boundaries)))
    return () if config.final_feature_normed else (num_layers,)


def drafter_features(config: DrafterConfig, capture: Capture) -> Float[Tensor, "token width"]:
    """Aux features side by side in the drafter's order, or the last hidden state, for every position of the text."""
    if config.feature_source == "final":
        return capture.final if config.final_feature_normed else capture.boundaries[len(capture.rms) - 1]
    assert config.aux_boundaries is not None
    missing = [b for b in config.aux_boundaries if b not in capture.boundaries]
    if missing:
        raise TargetError(f"capture of prompt {capture.prompt_id} holds no boundary {missing}; capture it with them")
    return torch.cat([capture.boundaries[b] for b in config.aux_boundaries], -1)


def drafter_text(config: DrafterConfig, capture: Capture, *, device: torch.device | str, dtype: torch.dtype) -> Text:
    """The prompt and its continuation on the drafter's device.

    Raises TargetError for a token that the drafter has no embedding for.
    """
    known = config.known_tokens
    if known is not None and (last := int(capture.token_ids.max())) >= known:
        raise TargetError(
            f"prompt {capture.prompt_id}: its text has token {last}, but the drafter embeds {known}: not its target, or"
            " leave the prompt out (--prompts)"
        )
    return Text(
        token_ids=capture.token_ids.to(device),
        prompt_length=capture.prompt_length,
        features=drafter_features(config, capture).to(device=device, dtype=dtype),
    )
