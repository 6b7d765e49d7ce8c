"""The example drafter under training-time test: every position of a text starts a chain, all unrolled together.

Step k of the chain at position t embeds token t+k, takes the state carried from step k-1, stands at position t+k-1 and
predicts token t+k+1. It attends to the step-1 keys of rows <= t and to the keys of its own steps 2..k.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class SoftCrossEntropy(torch.autograd.Function):
    """Weighted cross-entropy of a frozen head against a sparse target distribution.

    The gradient is made in the forward pass, in chunks of rows that stay in the cache; no logits are kept.
    """

    CHUNK = 256

    @staticmethod
    def forward(ctx, hidden: Tensor, head: Tensor, ids: Tensor, probabilities: Tensor, weights: Tensor):
        hidden = hidden.to(head.dtype)
        gradient = torch.empty_like(hidden)
        hits = torch.empty(len(hidden), dtype=torch.bool, device=hidden.device)
        loss = torch.zeros((), device=hidden.device)
        for start in range(0, len(hidden), SoftCrossEntropy.CHUNK):
            rows = slice(start, start + SoftCrossEntropy.CHUNK)
            logits = (hidden[rows] @ head.T).float()  # [row, draft_vocab]
            best, place = logits.max(-1)
            wanted = (logits.gather(-1, ids[rows]) * probabilities[rows]).sum(-1)
            inner = logits.sub_(best[:, None]).exp_()
            total = inner.sum(-1)
            loss += ((best + total.log() - wanted) * weights[rows]).sum()
            hits[rows] = place == ids[rows, 0]
            inner *= (weights[rows] / total)[:, None]
            inner.scatter_add_(-1, ids[rows], -probabilities[rows] * weights[rows, None])
            gradient[rows] = inner.to(head.dtype) @ head
        ctx.save_for_backward(gradient)
        ctx.mark_non_differentiable(hits)
        return loss, hits

    @staticmethod
    def backward(ctx, upstream: Tensor, _):
        (gradient,) = ctx.saved_tensors
        return gradient * upstream.to(gradient.dtype), None, None, None, None


class Norm(nn.Module):
    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x.float(), x.shape[-1:], self.weight, self.eps).to(x.dtype)


class TTTDrafter(nn.Module):
    """An EAGLE-3 layer whose parameter names are those of the published layout."""

    def __init__(self, config: dict, embedding: Tensor, head: Tensor) -> None:
        super().__init__()
        self.config = config
        hidden, inner = config["hidden_size"], config["intermediate_size"]
        self.heads, self.kv_heads, self.head_dim = (
            config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"]
        )  # fmt: skip
        eps = config["rms_norm_eps"]

        def linear(outputs: int, inputs: int) -> nn.Linear:
            layer = nn.Linear(inputs, outputs, bias=False)
            nn.init.normal_(layer.weight, std=0.02)
            return layer

        self.fc = linear(hidden, 3 * hidden)
        if config["fc_norm"]:
            self.fc_norm = nn.ModuleList(Norm(hidden, eps) for _ in range(3))
        self.midlayer = nn.Module()
        self.midlayer.input_layernorm = Norm(hidden, eps)
        self.midlayer.hidden_norm = Norm(hidden, eps)
        self.midlayer.post_attention_layernorm = Norm(hidden, eps)
        self.midlayer.self_attn = nn.Module()
        self.midlayer.self_attn.q_proj = linear(self.heads * self.head_dim, 2 * hidden)
        self.midlayer.self_attn.k_proj = linear(self.kv_heads * self.head_dim, 2 * hidden)
        self.midlayer.self_attn.v_proj = linear(self.kv_heads * self.head_dim, 2 * hidden)
        self.midlayer.self_attn.o_proj = linear(hidden, self.heads * self.head_dim)
        self.midlayer.mlp = nn.Module()
        self.midlayer.mlp.gate_proj = linear(inner, hidden)
        self.midlayer.mlp.up_proj = linear(inner, hidden)
        self.midlayer.mlp.down_proj = linear(hidden, inner)
        self.norm = Norm(hidden, eps)
        self.register_buffer("embedding", embedding, persistent=False)
        self.register_buffer("head", head, persistent=False)

    def rotate(self, x: Tensor, positions: Tensor) -> Tensor:
        """x [batch, row, head, dim] at positions [batch, row]."""
        half = self.head_dim // 2
        inverse = self.config["rope_theta"] ** (-torch.arange(half, device=x.device) / half)
        angles = positions[..., None].float() * inverse
        cos, sin = angles.cos()[:, :, None].to(x.dtype), angles.sin()[:, :, None].to(x.dtype)
        low, high = x.split(half, -1)
        return torch.cat([low * cos - high * sin, high * cos + low * sin], -1)

    def losses(
        self,
        ids: Tensor,
        sizes: Tensor,
        features: Tensor,
        top_ids: Tensor,
        top_probabilities: Tensor,
        steps: int,
        decay: float,
        starts: Tensor | None = None,
        share: float = 1.0,
    ) -> tuple[Tensor, Tensor]:
        """ids [batch, T]; features [batch, T, 3, H]; top_* [batch, T, 32]: the target's distribution over draft ids *after*
        each position; starts [batch]: the first anchor of each text. A part `share` of the anchors, drawn anew, goes on
        after step 1, so that deep steps cost less. Returns the loss (mean over anchors, steps weighted by decay**(k-1)) and
        top-1 agreement per step."""
        batch, length = ids.shape
        rows = length - 2
        starts = torch.zeros_like(sizes) if starts is None else starts
        layer = self.midlayer
        aux = features[:, :rows].unbind(2)
        if self.config["fc_norm"]:
            aux = [norm(x) for norm, x in zip(self.fc_norm, aux, strict=True)]
        fused = self.fc(torch.cat(list(aux), -1))
        # Anchors [batch, A]: as many columns as the text with most of them needs.
        count = int((sizes - 2 - starts).max())
        anchors = starts[:, None] + torch.arange(count, device=ids.device)
        valid, anchors = anchors < sizes[:, None] - 2, anchors.clamp(max=rows - 1)

        def of_anchors(x: Tensor) -> Tensor:
            return x.gather(1, anchors[..., None].expand(-1, -1, x.shape[-1]))

        mixed = torch.cat(
            [layer.input_layernorm(F.embedding(ids[:, 1 : rows + 1], self.embedding)), layer.hidden_norm(fused)], -1
        )
        first_keys, first_values = self.keys(mixed, torch.arange(rows, device=ids.device).expand(batch, -1))
        state, mixed = of_anchors(fused), of_anchors(mixed)
        own_keys: list[Tensor] = []
        own_values: list[Tensor] = []
        total, agreement = state.new_zeros((), dtype=torch.float32), []
        for k in range(1, steps + 1):
            if k == 2 and share < 1:
                drawn = torch.randperm(count, device=ids.device)[: max(1, round(share * count))].sort().values
                state, anchors, valid = state[:, drawn], anchors[:, drawn], valid[:, drawn]
            positions = anchors + k - 1
            if k > 1:
                embed = F.embedding(ids.gather(1, (anchors + k).clamp(max=length - 1)), self.embedding)
                mixed = torch.cat([layer.input_layernorm(embed), layer.hidden_norm(state)], -1)
                key, value = self.keys(mixed, positions)
                own_keys.append(key)
                own_values.append(value)
            query = self.queries(mixed, positions)
            causal = torch.arange(rows, device=ids.device) <= anchors[..., None]
            after = state + self.attend(query, causal, first_keys, first_values, own_keys, own_values)
            inner = layer.post_attention_layernorm(after)
            residual = after + layer.mlp.down_proj(F.silu(layer.mlp.gate_proj(inner)) * layer.mlp.up_proj(inner))
            normed = self.norm(residual)
            state = normed if self.config["norm_output"] else residual
            # Step k of the anchor at t predicts token t+k+1: the target's distribution after position t+k.
            real = valid & (anchors + k + 1 < sizes[:, None])
            told = (anchors + k).clamp(max=length - 1)[real]
            text = torch.arange(batch, device=ids.device)[:, None].expand_as(real)[real]
            weights = torch.full((len(text),), 1 / max(len(text), 1), device=ids.device)
            loss, hits = SoftCrossEntropy.apply(
                normed[real], self.head, top_ids[text, told], top_probabilities[text, told].float(), weights
            )
            total = total + decay ** (k - 1) * loss
            agreement.append(hits.float().mean())
        return total, torch.stack(agreement)

    def queries(self, mixed: Tensor, positions: Tensor) -> Tensor:
        """Scaled and rotated [batch, head, row, dim]."""
        query = self.midlayer.self_attn.q_proj(mixed).unflatten(-1, (self.heads, self.head_dim))
        return (self.rotate(query, positions) * self.head_dim**-0.5).transpose(1, 2)

    def keys(self, mixed: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values [batch, KV head, row, dim]."""
        attn = self.midlayer.self_attn
        key = self.rotate(attn.k_proj(mixed).unflatten(-1, (self.kv_heads, self.head_dim)), positions)
        return key.transpose(1, 2), attn.v_proj(mixed).unflatten(-1, (self.kv_heads, self.head_dim)).transpose(1, 2)

    def attend(
        self,
        query: Tensor,
        causal: Tensor,
        keys: Tensor,
        values: Tensor,
        own_keys: list[Tensor],
        own_values: list[Tensor],
    ) -> Tensor:
        """What attention adds to the state [batch, row, H]: over the text's rows where `causal` [batch, row, text row], and
        over the chain's own rows."""
        batch, _, rows, _ = query.shape
        # The query heads that share a key head are rows of it.
        grouped = query.unflatten(1, (self.kv_heads, -1))  # [batch, KV head, group, row, dim]
        far = (
            (grouped.flatten(2, 3) @ keys.mT)
            .unflatten(2, (-1, rows))
            .masked_fill(~causal[:, None, None], float("-inf"))
        )
        near = [(grouped * own[:, :, None]).sum(-1, keepdim=True) for own in own_keys]
        weights = torch.cat([far, *near], -1).float().softmax(-1).to(values.dtype)
        far, *near = weights.split([keys.shape[2], *[1] * len(near)], -1)
        mixed = (far.flatten(2, 3) @ values).unflatten(2, (-1, rows))
        for weight, own in zip(near, own_values, strict=True):
            mixed = mixed + weight * own[:, :, None]
        return self.midlayer.self_attn.o_proj(mixed.flatten(1, 2).transpose(1, 2).reshape(batch, rows, -1))
