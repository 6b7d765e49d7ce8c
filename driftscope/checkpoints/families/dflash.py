"""DFlash as z-lab publishes it: a small Qwen3 model over a block of masks, with fc and hidden_norm for the features.

`dflash_config` holds the mask token and the layers whose outputs are read; embedding and head are the target's."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from driftscope.checkpoints import sizes
from driftscope.checkpoints.config import DrafterConfig
from driftscope.checkpoints.families import eagle3
from driftscope.checkpoints.families import mla as latent
from driftscope.checkpoints.families.parallel_drafting import resolve_mask_token
from driftscope.checkpoints.reading import names
from driftscope.checkpoints.reading.aux_ids import find_aux_ids, resolve_aux
from driftscope.checkpoints.reading.board import Switchboard
from driftscope.errors import CheckpointError

NAME = "dflash"
_NESTED = "dflash_config"
_EAGLE_KEYS = ("fc_norm", "norm_before_fc", "norm_output", "norm_before_residual", "num_aux_hidden_states")


def recognise(bare: Collection[str], raw: Mapping[str, Any]) -> str | None:
    return "hidden_norm beside fc, outside the layers" if {"hidden_norm.weight", "fc.weight"} <= set(bare) else None


def flatten(raw: Mapping[str, Any]) -> dict[str, Any]:
    return dict(raw)


def rename(bare: str) -> str | None:
    return bare if bare == "hidden_norm.weight" else names.canonical(bare)


def resolve(board: Switchboard) -> None:
    resolve_block(board, eagle3.Traits(heads_default={"head_dim": 128}))


def resolve_block(board: Switchboard, traits: eagle3.Traits) -> None:
    """Put every switch of a DFlash drafter. What says how it was trained and is not recorded is asked for.

    Raises:
        CheckpointError: tensors or config values that contradict each other, or a size that nothing tells.
    """
    board.put("layer_form", "dflash", "weights", "hidden_norm beside fc")
    sizes.resolve_widths(board)
    if board.has(latent.MARK):
        raise CheckpointError(f"{latent.MARK}: a block drafter with latent attention, which is not read here")
    hidden = board.get("hidden_size")
    if (reads := board.shape("layers.0.self_attn.q_proj.weight")[1]) != hidden:
        raise CheckpointError(f"q_proj of layer 0 reads {reads} features, expected the drafter's width {hidden}")
    sizes.resolve_heads(board, traits.heads_default)
    sizes.resolve_biases(board)
    board.put("feature_source", "aux", "default", "DFlash")
    sizes.resolve_features(board)
    for switch, value in (("fc_norm", False), ("input_norm", False), ("residual", "raw"), ("state_norm", True)):
        board.put(switch, value, "default", "DFlash")
    if board.put("carry", "none", "default", "DFlash drafts a block at once") != "none":
        board.problems.append(f"a DFlash drafter carries nothing: carry cannot be {board.get('carry')}")
    board.put("final_norm", True, "weights", "norm.weight")
    eagle3.resolve_later_norm(board)
    eagle3.resolve_common(board, traits)
    resolve_aux(board)
    if find_aux_ids(board) is None and board.user("aux_boundaries") is None:
        board.problems.append(
            f"the layers that it reads are not in the config (target_layer_ids): give --aux, {board.get('num_aux')}"
            " boundaries, each one more than the layer whose output is read"
        )
    _resolve_scales(board)
    _resolve_rows(board)


def _resolve_scales(board: Switchboard) -> None:
    for switch, key in (("embed_scale", "input_embedding_scale"), ("logit_scale", "output_multiplier")):
        if scale := board.real(f"{_NESTED}.{key}", key):
            board.put(switch, scale[0], "config", scale[1])
    for key, what in (("final_logit_softcapping", "a cap on the logits"), ("fc_layernorm", "norms before fc")):
        found = board.raw_value(f"{_NESTED}.{key}", key)
        if found and found[0]:
            board.problems.append(f"{found[1]} is {found[0]}: {what}, which is not run here")


def _resolve_rows(board: Switchboard) -> None:
    """Put block_size, mask_token_id, sample_from_anchor and block_causal."""
    resolve_mask_token(board, f"{_NESTED}.mask_token_id", "mask_token_id")
    anchor = board.flag(f"{_NESTED}.sample_from_anchor", "sample_from_anchor")
    board.put("sample_from_anchor", *((anchor[0], "config", anchor[1]) if anchor else (False, "default", "DFlash")))
    if size := board.number(f"{_NESTED}.block_size", "block_size"):
        board.put("block_size", size[0], "config", size[1])
    elif board.user("block_size") is None:
        board.problems.append(
            "block_size is not in the config: give --set block_size=N, the rows of a block in training (the known"
            " token and the masks)"
        )
    least = 1 if board.get("sample_from_anchor") else 2
    if (rows := board.get("block_size")) is not None and rows < least:
        board.problems.append(f"block_size is {rows}: a block drafts from {least} rows on")
    causal = board.flag("is_causal", f"{_NESTED}.is_causal")
    free = board.flag("sliding_window_non_causal")
    if causal is not None:
        board.put("block_causal", "all" if causal[0] else "none", "config", causal[1])
    elif free is not None:
        board.put("block_causal", "none" if free[0] else "sliding", "config", free[1])
    else:
        board.put("block_causal", "sliding", "default", "DFlash: layers with a window look back only")


def stored_name(canonical: str) -> str:
    return canonical


def layer_json(config: DrafterConfig) -> dict[str, Any]:
    """The config of the Qwen3 model that its layers are those of.

    Raises:
        CheckpointError: no DFlash drafter.
    """
    if not config.in_blocks:
        raise CheckpointError(f"the DFlash layouts hold no drafter of layer_form {config.layer_form}")
    written = eagle3.llama_json(config) | {"model_type": "qwen3"}
    return {key: value for key, value in written.items() if key not in _EAGLE_KEYS}


def config_json(config: DrafterConfig) -> dict[str, Any]:
    written = layer_json(config) | {"architectures": ["DFlashDraftModel"], "block_size": config.block_size}
    nested: dict[str, Any] = {"mask_token_id": config.mask_token_id}
    if config.aux_boundaries is not None:
        nested["target_layer_ids"] = eagle3.layer_outputs(config)
    if config.sample_from_anchor:
        nested["sample_from_anchor"] = True
    if config.block_causal != "sliding":
        written["is_causal"] = config.block_causal == "all"
    return written | {_NESTED: nested}
