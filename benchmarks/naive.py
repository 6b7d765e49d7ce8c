"""The drafter as a script runs it that measures one chain after another, written from the weights alone.

Nothing here uses driftscope's drafter, so that agreement means something; the tests take it as their reference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from driftscope.checkpoints.config import DrafterConfig

BUCKETS = ("sink", "prompt", "committed", "drafted", "current")
KNOWN = {
    "layer_form": "eagle3", "num_layers": 1, "feature_source": "aux", "input_norm": False, "fc": True, "fc_bias": False,
    "embed_first": True, "state_norm": True, "double_norm": False, "embed_scale": 1.0, "attention_bias": False,
    "output_bias": False, "mlp_bias": False, "qk_norm": False, "hidden_act": "silu", "norm_offset": 0.0,
    "sliding_window": None, "rope.scaling": None, "rope.layout": "neox", "rope.partial": 1.0, "position_increment": 1,
    "final_norm": True, "logit_scale": 1.0, "fc_mlp": False, "mask_first_embed": False, "layer_config": None,
    "kv_lora_rank": None, "learned_sinks": False, "gated_attention": False, "draft_kv": "kept", "wide_output": False,
}  # fmt: skip
"""The only values of these switches that the plain loops know."""

Weights = dict[str, Tensor]
Row = dict[str, Tensor]
"""The sites of one row; `attention` is [head, key 0..row]."""
Cache = tuple[Tensor, Tensor]
"""Keys and values [row, kv_head, dim]."""


def unknown_switches(config: DrafterConfig) -> list[str]:
    """What the plain loops would run otherwise than the config says."""
    switches = config.switches()
    return [f"{name} = {switches[name]}" for name, value in KNOWN.items() if switches[name] != value]


def norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return x * (x.pow(2).mean(-1, keepdim=True) + eps).rsqrt() * weight


def rotation(positions: Tensor, half: int, theta: float) -> tuple[Tensor, Tensor]:
    """cos and sin [row, 1, half]."""
    angle = positions[:, None].double() * theta ** (-torch.arange(half, device=positions.device).double() / half)
    return angle.cos().float()[:, None], angle.sin().float()[:, None]


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x [row, head, dim], pairs (i, i + dim/2)."""
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def fuse(config: DrafterConfig, w: Weights, features: Tensor) -> Tensor:
    """The states of rows with target features."""
    parts = list(features.chunk(config.num_aux, -1))
    if config.fc_norm:
        parts = [norm(x, w[f"fc_norm.{i}.weight"], config.rms_norm_eps) for i, x in enumerate(parts)]
    return torch.cat(parts, -1) @ w["fc.weight"].T


def forward(
    config: DrafterConfig, w: Weights, states: Tensor, embeds: Tensor, positions: Tensor, past: Cache | None = None
) -> Row:
    """The given rows through one EAGLE-3 layer, causal among themselves and after all rows of `past`.

    Without `past` this is the whole sequence with its full attention matrix, [head, row, row].
    """
    eps, rows = config.rms_norm_eps, len(states)
    p = "layers.0."
    normed = norm(states, w[p + "hidden_norm.weight"], eps)
    x = torch.cat([norm(embeds, w[p + "input_layernorm.weight"], eps), normed], -1)
    q, k, v = (
        (x @ w[p + f"self_attn.{name}_proj.weight"].T).view(rows, -1, config.head_dim) for name in ("q", "k", "v")
    )
    cos, sin = rotation(positions, config.head_dim // 2, config.rope.theta)
    q, k = rotate(q, cos, sin), rotate(k, cos, sin)
    keys, values = (k, v) if past is None else (torch.cat([past[0], k]), torch.cat([past[1], v]))
    groups = config.num_heads // config.num_kv_heads
    keys, values = keys.repeat_interleave(groups, 1), values.repeat_interleave(groups, 1)
    scores = torch.einsum("qhd,khd->hqk", q, keys) / config.head_dim**0.5
    if rows > 1:
        seen = torch.ones(rows, len(keys), dtype=torch.bool, device=x.device).tril(len(keys) - rows)
        scores = scores.masked_fill(~seen, float("-inf"))
    attention = scores.softmax(-1)
    mixed = torch.einsum("hqk,khd->qhd", attention, values).reshape(rows, -1)
    attn_update = mixed @ w[p + "self_attn.o_proj.weight"].T
    after = (normed if config.residual == "normed" else states) + attn_update
    inner = norm(after, w[p + "post_attention_layernorm.weight"], eps)
    gate, up = inner @ w[p + "mlp.gate_proj.weight"].T, inner @ w[p + "mlp.up_proj.weight"].T
    mlp_update = (F.silu(gate) * up) @ w[p + "mlp.down_proj.weight"].T
    y = after + mlp_update
    top = norm(y, w["norm.weight"], eps)
    return {
        "state": states, "q": q, "k": k, "v": v, "attention": attention, "attn_update": attn_update,
        "after_attn": after, "mlp_update": mlp_update, "residual": y, "final_norm": top,
        "carry": top if config.carry == "post" else y,
    }  # fmt: skip


def last_row(config: DrafterConfig, w: Weights, out: Row) -> Row:
    """The sites of the last row, with its logits and the token that it drafts. Views: what they are cut from lives on."""
    row = {name: value[:, -1] if name == "attention" else value[-1] for name, value in out.items()}
    row["logits"] = w["lm_head.weight"] @ row["final_norm"]
    # An index without a dimension would be read by the host.
    row["drafted"] = target_ids(config, w)[row["logits"].argmax(-1, keepdim=True)][0]
    return row


def target_ids(config: DrafterConfig, w: Weights) -> Tensor:
    """Target id of every draft id."""
    ids = torch.arange(config.draft_vocab_size, device=w["lm_head.weight"].device)
    return ids if config.vocab_map == "none" else w["d2t"] + ids if config.vocab_map == "offset" else w["d2t"]


def speculate(
    config: DrafterConfig,
    w: Weights,
    embedding: Tensor,
    token_ids: Tensor,
    fused: Tensor,
    anchor: int,
    depth: int,
    feed: str = "drafted",
) -> list[Row]:
    """One chain. Every step runs the whole sequence again: rows <= anchor from target features, later ones from the
    states carried so far. The full matrices stay alive as long as the rows do."""
    states, tokens = fused[: anchor + 1], token_ids[1 : anchor + 2]
    steps: list[Row] = []
    for k in range(1, depth + 1):
        out = forward(config, w, states, embedding[tokens], torch.arange(len(states), device=states.device))
        steps.append(last_row(config, w, out))
        following = token_ids[anchor + k + 1] if feed == "text" else steps[-1]["drafted"]
        states = torch.cat([states, steps[-1]["carry"][None]])
        tokens = torch.cat([tokens, following.view(1)])
    return steps


def prefill(config: DrafterConfig, w: Weights, embedding: Tensor, token_ids: Tensor, fused: Tensor, rows: int) -> Cache:
    """Keys and values of the first `rows` rows."""
    out = forward(config, w, fused[:rows], embedding[token_ids[1 : rows + 1]], torch.arange(rows, device=fused.device))
    return out["k"], out["v"]


def speculate_cached(
    config: DrafterConfig,
    w: Weights,
    embedding: Tensor,
    token: Tensor,
    state: Tensor,
    past: Cache,
    depth: int,
) -> tuple[list[Row], Cache]:
    """One chain with a KV cache, a row at a time. token and state: those of the anchor's row, the first after `past`.

    Returns the steps and the cache of the next anchor, which is `past` with the anchor's row.
    """
    steps: list[Row] = []
    grown: list[Cache] = []
    for _ in range(depth):
        out = forward(
            config, w, state[None], embedding[token[None]], torch.tensor([len(past[0])], device=state.device), past
        )
        steps.append(last_row(config, w, out))
        past = torch.cat([past[0], out["k"]]), torch.cat([past[1], out["v"]])
        grown.append(past)
        state, token = steps[-1]["carry"], steps[-1]["drafted"]
    return steps, grown[0]


@dataclass(frozen=True)
class Numbers:
    """What a probe reads off the chains of one text."""

    carry_rms: Tensor
    """[anchor, step]"""
    mass: Tensor
    """[anchor, step, head, bucket], in the order of BUCKETS."""
    drafted: Tensor
    """[anchor, step], ids of the target's vocabulary."""
    gap: Tensor | None = None
    """[anchor, step]: by how much the drafted token's logit is the largest."""

    def on_cpu(self) -> Numbers:
        gap = None if self.gap is None else self.gap.cpu()
        return Numbers(self.carry_rms.cpu(), self.mass.cpu(), self.drafted.cpu(), gap)


def masses(attention: Tensor, anchor: int, prompt_length: int, sinks: Iterable[int]) -> Tensor:
    """[head, bucket] of the last of the rows that `attention` [head, key] looks at."""
    row, prompt_end = attention.shape[-1] - 1, prompt_length - 1
    rest = attention.clone()
    at = [p for p in sinks if p <= row]
    rest[:, at] = 0
    # At step 1 the anchor's row is the current one.
    committed = rest[:, prompt_end : min(anchor + 1, row)]
    parts = (attention[:, at], rest[:, : min(prompt_end, row)], committed, rest[:, anchor + 1 : row], rest[:, row:])
    return torch.stack([part.sum(-1) for part in parts], -1)


def numbers(chains: Iterable[tuple[int, list[Row]]], prompt_length: int, sinks: Iterable[int]) -> Numbers:
    """Reduce chains, each with its anchor, as they come."""
    sinks = tuple(sinks)
    rms, mass, drafted, gap = [], [], [], []
    for anchor, steps in chains:
        rms.append(torch.stack([row["carry"].pow(2).mean().sqrt() for row in steps]))
        mass.append(torch.stack([masses(row["attention"], anchor, prompt_length, sinks) for row in steps]))
        drafted.append(torch.stack([row["drafted"] for row in steps]))
        best = torch.stack([row["logits"].topk(2).values for row in steps])
        gap.append(best[:, 0] - best[:, 1])
    return Numbers(torch.stack(rms), torch.stack(mass), torch.stack(drafted), torch.stack(gap))


Probe = Callable[[DrafterConfig, Weights, Tensor, Tensor, int, Tensor, list[int], int, tuple[int, ...]], Numbers]
"""(config, weights, embedding, token_ids, prompt_length, features, anchors, depth, sinks) -> Numbers."""


@torch.no_grad()
def probe_eager(
    config: DrafterConfig,
    w: Weights,
    embedding: Tensor,
    token_ids: Tensor,
    prompt_length: int,
    features: Tensor,
    anchors: list[int],
    depth: int,
    sinks: tuple[int, ...],
) -> Numbers:
    """No cache: every step of every chain runs the whole sequence, and the matrices of a chain are kept until its end."""
    fused = fuse(config, w, features)
    chains = ((t, speculate(config, w, embedding, token_ids, fused, t, depth)) for t in anchors)
    return numbers(chains, prompt_length, sinks)


@torch.no_grad()
def probe_cached(
    config: DrafterConfig,
    w: Weights,
    embedding: Tensor,
    token_ids: Tensor,
    prompt_length: int,
    features: Tensor,
    anchors: list[int],
    depth: int,
    sinks: tuple[int, ...],
) -> Numbers:
    """A KV cache over the text: every step of every chain runs one row. Anchors must follow each other."""
    fused = fuse(config, w, features)

    def chains() -> Iterable[tuple[int, list[Row]]]:
        past = prefill(config, w, embedding, token_ids, fused, anchors[0])
        for t in anchors:
            steps, past = speculate_cached(config, w, embedding, token_ids[t + 1], fused[t], past, depth)
            yield t, steps

    return numbers(chains(), prompt_length, sinks)


@torch.no_grad()
def plain_captures(
    model: Any, prompts: Sequence[Sequence[int]], max_new_tokens: int, boundaries: Iterable[int], eos_ids: Iterable[int]
) -> list[tuple[Tensor, Tensor]]:
    """Token ids and features of prompts, as a script gets them: one generate over all, padded on the left, then a forward a
    text that returns all states. A single prompt is a batch of one.

    boundaries: below the number of layers, since transformers returns the last state after the final norm.
    """
    eos, longest = sorted(eos_ids), max(map(len, prompts))
    ids = torch.full((len(prompts), longest), eos[0] if eos else 0)
    mask = torch.zeros_like(ids)
    for row, prompt in enumerate(prompts):
        ids[row, longest - len(prompt) :] = torch.tensor(list(prompt))
        mask[row, longest - len(prompt) :] = 1
    made = model.generate(
        input_ids=ids.to(model.device),
        attention_mask=mask.to(model.device),
        do_sample=False,
        max_new_tokens=max_new_tokens,
        eos_token_id=eos or None,
        pad_token_id=eos[0] if eos else 0,
    )
    found = []
    for prompt, row in zip(prompts, made, strict=True):
        said = row[longest:].tolist()
        said = said[: next((place + 1 for place, token in enumerate(said) if token in eos), len(said))]
        text = torch.tensor([[*prompt, *said]], device=model.device)
        states = model(input_ids=text, use_cache=False, output_hidden_states=True).hidden_states
        found.append((text[0], torch.cat([states[b][0] for b in boundaries], -1)))
    return found
