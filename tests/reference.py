"""A drafter and its speculation loop written plainly from the weights: one anchor at a time, full matrices, no chunks.

Nothing here uses driftscope's drafter, so that agreement means something.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from driftscope.checkpoints.config import DrafterConfig


def norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return x * (x.pow(2).mean(-1, keepdim=True) + eps).rsqrt() * weight


def rotate(x: Tensor, positions: Tensor, theta: float) -> Tensor:
    """x [row, head, dim], pairs (i, i + dim/2)."""
    half = x.shape[-1] // 2
    angle = positions[:, None].double() * theta ** (-torch.arange(half).double() / half)
    cos, sin = angle.cos().float()[:, None], angle.sin().float()[:, None]
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def forward(
    config: DrafterConfig, w: dict[str, Tensor], states: Tensor, embeds: Tensor, positions: Tensor
) -> dict[str, Tensor]:
    """All rows at once through one EAGLE-3 layer with a full causal matrix."""
    eps, rows = config.rms_norm_eps, len(states)
    p = "layers.0."
    normed = norm(states, w[p + "hidden_norm.weight"], eps)
    x = torch.cat([norm(embeds, w[p + "input_layernorm.weight"], eps), normed], -1)
    q, k, v = (
        (x @ w[p + f"self_attn.{name}_proj.weight"].T).view(rows, -1, config.head_dim) for name in ("q", "k", "v")
    )
    q, k = rotate(q, positions, config.rope.theta), rotate(k, positions, config.rope.theta)
    groups = config.num_heads // config.num_kv_heads
    keys, values = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    scores = torch.einsum("qhd,khd->hqk", q, keys) / config.head_dim**0.5
    scores = scores.masked_fill(~torch.ones(rows, rows, dtype=torch.bool).tril(), float("-inf"))
    attention = scores.softmax(-1)
    mixed = torch.einsum("hqk,khd->qhd", attention, values).reshape(rows, -1)
    attn_update = mixed @ w[p + "self_attn.o_proj.weight"].T
    after = (normed if config.residual == "normed" else states) + attn_update
    inner = norm(after, w[p + "post_attention_layernorm.weight"], eps)
    gate, up = inner @ w[p + "mlp.gate_proj.weight"].T, inner @ w[p + "mlp.up_proj.weight"].T
    mlp_update = (F.silu(gate) * up) @ w[p + "mlp.down_proj.weight"].T
    y = after + mlp_update
    top = norm(y, w["norm.weight"], eps)
    carry = top if config.carry == "post" else y
    return {
        "q": q, "k": k, "v": v, "attention": attention, "attn_update": attn_update, "after_attn": after,
        "mlp_update": mlp_update, "residual": y, "final_norm": top, "carry": carry,
        "logits": top @ w["lm_head.weight"].T,
    }  # fmt: skip


def fuse(config: DrafterConfig, w: dict[str, Tensor], features: Tensor) -> Tensor:
    parts = list(features.chunk(config.num_aux, -1))
    if config.fc_norm:
        parts = [norm(x, w[f"fc_norm.{i}.weight"], config.rms_norm_eps) for i, x in enumerate(parts)]
    return torch.cat(parts, -1) @ w["fc.weight"].T


def speculate(
    config: DrafterConfig,
    w: dict[str, Tensor],
    embedding: Tensor,
    token_ids: Tensor,
    features: Tensor,
    anchor: int,
    depth: int,
    feed: str,
) -> list[dict[str, Tensor]]:
    """One chain; for each step the sites of its row, attention over rows 0..r, and the drafted target id.

    Every step recomputes all rows: rows <= anchor from target features, later ones from the states carried so far.
    """
    d2t = w["d2t"] if config.vocab_map == "offset" else torch.zeros(config.draft_vocab_size, dtype=torch.long)
    states = fuse(config, w, features[: anchor + 1])
    tokens = token_ids[1 : anchor + 2]
    steps = []
    for k in range(1, depth + 1):
        out = forward(config, w, states, embedding[tokens], torch.arange(len(states)))
        row = {name: value[:, -1] if name == "attention" else value[-1] for name, value in out.items()}
        draft = int(row["logits"].argmax())
        row["drafted"] = draft + d2t[draft]
        row["state"] = states[-1]
        steps.append(row)
        following = token_ids[anchor + k + 1] if feed == "text" else row["drafted"]
        states = torch.cat([states, row["carry"][None]])
        tokens = torch.cat([tokens, following.view(1)])
    return steps
