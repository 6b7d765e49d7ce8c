"""The prefix pass of several texts at once, of which only keys and values are wanted: neither a baseline nor masses."""

from __future__ import annotations

from contextlib import suppress

import torch
from jaxtyping import Float, Int
from torch import Tensor

from driftscope.drafter.attention import Prefix, causal_outputs
from driftscope.drafter.layer import AttentionLayer, KeysDoneError
from driftscope.drafter.model import Drafter


@torch.no_grad()
def prefix_keys(
    drafter: Drafter, states: Float[Tensor, "prompt row hidden"], token_ids: Int[Tensor, "prompt row"]
) -> list[Prefix]:
    """Keys and values that the rows of several texts of like length give, for every layer.

    Args:
        states: what the rows start from, `drafter.fuse` of real features.
        token_ids: what row i embeds, the token behind it.

    Returns:
        Per layer, [prompt, kv_head, row, dim]. The last layer makes nothing else.
    """
    prompts, count, _ = states.shape
    windows = drafter.windows
    found: list[Prefix] = []

    def attend(layer: AttentionLayer, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        query, key, value = (part.unflatten(0, (prompts, count)).transpose(1, 2) for part in (query, key, value))
        found.append(Prefix(key, value))
        if layer.index == drafter.config.num_layers - 1:
            raise KeysDoneError
        mixed = causal_outputs(
            query, found[-1], windows[layer.index], scaling=layer.scaling, sink_logits=layer.sink_logits
        )
        return mixed.transpose(1, 2).flatten(0, 1)

    positions = torch.arange(count, device=states.device).expand(prompts, -1)
    with suppress(KeysDoneError):
        drafter.step(states.flatten(0, 1), token_ids.flatten(), positions.flatten(), attend)
    return found
