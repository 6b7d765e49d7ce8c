"""Sizes of latent attention (MLA), counted in its tensors."""

from __future__ import annotations

from driftscope.checkpoints.reading.board import Switchboard
from driftscope.errors import CheckpointError

_HERE = "layers.0.self_attn."
MARK = f"{_HERE}kv_a_proj_with_mqa.weight"
"""The tensor that only latent attention has."""


def resolve_latent(board: Switchboard) -> None:
    """Put the ranks, num_heads, num_kv_heads, head_dim, qk_rope_head_dim and v_head_dim.

    The number of heads follows from the rows: q makes heads x (plain + rotated), kv_b heads x (plain + value), o reads
    heads x value.

    Raises:
        CheckpointError: rows that no number of heads gives, or another one than the config says.
    """
    rank = board.shape(f"{_HERE}kv_a_layernorm.weight", 1)[0]
    rope = board.shape(MARK)[0] - rank
    compressed = board.has(f"{_HERE}q_a_proj.weight")
    query = board.shape(f"{_HERE}{'q_b_proj' if compressed else 'q_proj'}.weight")[0]
    both, value = board.shape(f"{_HERE}kv_b_proj.weight")[0], board.shape(f"{_HERE}o_proj.weight")[1]
    turned = query - (both - value)
    heads = turned // rope if rope > 0 and turned > 0 else 0
    if heads < 1 or turned % rope or any(rows % heads for rows in (query, both, value)):
        raise CheckpointError(
            f"no number of heads gives {query} rows of q, {both} of kv_b_proj and {value} columns of o_proj with"
            f" {rope} rotated entries ({MARK} less kv_a_layernorm)"
        )
    counted = f"rows of q, kv_b_proj and o_proj with {rope} rotated entries"
    for switch, found, key, detail in (
        ("kv_lora_rank", rank, "kv_lora_rank", f"{_HERE}kv_a_layernorm.weight"),
        ("q_lora_rank", _query_rank(board, compressed), "q_lora_rank", f"{_HERE}q_a_layernorm.weight"),
        ("qk_rope_head_dim", rope, "qk_rope_head_dim", f"{MARK} less the latent"),
        ("v_head_dim", value // heads, "v_head_dim", counted),
        ("num_heads", heads, "num_attention_heads", counted),
    ):
        stated = board.number(key)
        if stated and stated[0] != found:
            raise CheckpointError(f"{detail} gives {switch} {found}, but the config says {key} = {stated[0]}")
        board.put(switch, found, *(("config", key) if stated else ("weights", detail)))
    board.put("num_kv_heads", heads, "weights", "every head has its own key and value")
    plain = board.number("qk_nope_head_dim")
    if plain and plain[0] + rope != query // heads:
        raise CheckpointError(f"q has {query // heads} entries a head, but the config says {plain[0]} + {rope}")
    board.put("head_dim", query // heads, "weights", counted)


def _query_rank(board: Switchboard, compressed: bool) -> int | None:
    return board.shape(f"{_HERE}q_a_layernorm.weight", 1)[0] if compressed else None


def resolve_layout(board: Switchboard) -> None:
    """Put rope.layout: pairs of neighbours, as every engine turns the rotated part of latent attention."""
    if not board.has(MARK):
        return
    stated = board.flag("rope_interleave")
    if stated:
        board.put("rope.layout", "interleaved" if stated[0] else "neox", "config", stated[1])
    else:
        board.put("rope.layout", "interleaved", "default", "vLLM and SGLang, latent attention")
