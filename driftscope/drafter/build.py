"""From a checkpoint's config and weights to a Drafter that is ready to run."""

from __future__ import annotations

import re
from collections.abc import Mapping

import torch
from torch import Tensor

from driftscope.checkpoints.config import DrafterConfig
from driftscope.checkpoints.reading.padding import fit_rows
from driftscope.drafter.block import BlockDrafter
from driftscope.drafter.model import Drafter
from driftscope.errors import CheckpointError

MAPS = ("d2t", "t2d")


def drafter_class(config: DrafterConfig) -> type[Drafter]:
    """The module that a drafter with these switches is."""
    return BlockDrafter if config.in_blocks else Drafter


def build_drafter(
    config: DrafterConfig,
    weights: Mapping[str, Tensor],
    *,
    target_embedding: Tensor,
    target_head: Tensor,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> Drafter:
    """Build the drafter that `config` describes.

    weights: canonical names (see driftscope.checkpoints). target_embedding and target_head, [vocab, target_hidden], stand in
    where the config says that embedding or head are the target's. Raises CheckpointError when a tensor is missing or has
    another shape than the config gives it.
    """
    with torch.device("meta"):
        drafter = drafter_class(config)(config)
    state = {name: tensor for name, tensor in fit_rows(config, weights).items() if name not in MAPS}
    if config.embedding == "target":
        state["embed_tokens.weight"] = target_embedding
    if config.head == "target":
        state["lm_head.weight"] = target_head
        if config.known_tokens is not None:
            # What the drafter could not embed, it does not draft.
            state["lm_head.weight"] = target_head[: config.draft_vocab_size]
    target_ids = target_token_ids(config, weights.get("d2t"))
    wanted = drafter.state_dict()
    for name, slot in wanted.items():
        if name not in state:
            raise CheckpointError(f"tensor {name} is missing: the switches ask for it with shape {list(slot.shape)}")
        if state[name].shape != slot.shape:
            raise CheckpointError(
                f"tensor {name} has shape {list(state[name].shape)}, the switches ask for {list(slot.shape)}"
            )
    drafter = drafter.to_empty(device=device)
    # Assigned, not copied: the target's embedding and head are shared where device and dtype agree.
    kept = re.compile("|".join(p for layer in drafter.layers for p in layer.float32) or "^$")
    ready = {
        name: state[name].detach().to(device=device, dtype=torch.float32 if kept.search(name) else dtype)
        for name in wanted
    }
    drafter.load_state_dict(ready, assign=True)
    for layer in drafter.layers:
        layer.restore_buffers(config, device)
    drafter.target_ids = target_ids.to(device)
    return drafter.requires_grad_(False).eval()


def target_token_ids(config: DrafterConfig, d2t: Tensor | None) -> Tensor:
    """Target id of every draft id, Long[draft_vocab], as `vocab_map` reads d2t. CheckpointError for an id out of range."""
    ids = torch.arange(config.draft_vocab_size)
    if config.vocab_map != "none":
        if d2t is None:
            raise CheckpointError(f"vocab_map is {config.vocab_map} but the checkpoint has no d2t")
        ids = d2t.long() + ids if config.vocab_map == "offset" else d2t.long()
    if int(ids.min()) < 0 or int(ids.max()) >= config.vocab_size:
        raise CheckpointError(
            f"d2t read as {config.vocab_map} gives target ids {int(ids.min())}..{int(ids.max())}, outside the vocabulary of "
            f"{config.vocab_size}; try --set vocab_map={'index' if config.vocab_map == 'offset' else 'offset'}"
        )
    return ids
