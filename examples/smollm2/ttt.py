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

    def rotate(self, x: Tensor, start: int) -> Tensor:
        """x [batch, row, head, dim] at positions start + row."""
        half = self.head_dim // 2
        inverse = self.config["rope_theta"] ** (-torch.arange(half, device=x.device) / half)
        angles = torch.outer(torch.arange(start, start + x.shape[1], device=x.device).float(), inverse)
        cos, sin = angles.cos()[None, :, None].to(x.dtype), angles.sin()[None, :, None].to(x.dtype)
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
    ) -> tuple[Tensor, Tensor]:
        """ids [batch, T]; features [batch, T, 3, H]; top_* [batch, T, 32]: the target's distribution over draft ids *after*
        each position. Returns the loss (mean over rows, steps weighted by decay**k) and top-1 agreement per step."""
        batch, length = ids.shape
        rows = length - steps - 1  # rows whose deepest step still has a target
        layer, attn = self.midlayer, self.midlayer.self_attn
        groups = self.heads // self.kv_heads
        aux = features[:, :rows].unbind(2)
        if self.config["fc_norm"]:
            aux = [norm(x) for norm, x in zip(self.fc_norm, aux, strict=True)]
        state = self.fc(torch.cat(list(aux), -1))
        causal = torch.ones(rows, rows, dtype=torch.bool, device=ids.device).tril()
        scale = self.head_dim**-0.5
        first_keys = first_values = None
        own_keys: list[Tensor] = []
        own_values: list[Tensor] = []
        total, agreement = state.new_zeros((), dtype=torch.float32), []
        for k in range(1, steps + 1):
            embed = F.embedding(ids[:, k : k + rows], self.embedding)
            mixed = torch.cat([layer.input_layernorm(embed), layer.hidden_norm(state)], -1)
            q = self.rotate(attn.q_proj(mixed).view(batch, rows, self.heads, self.head_dim), k - 1)
            key = self.rotate(attn.k_proj(mixed).view(batch, rows, self.kv_heads, self.head_dim), k - 1)
            value = attn.v_proj(mixed).view(batch, rows, self.kv_heads, self.head_dim)
            key, value = key.repeat_interleave(groups, 2), value.repeat_interleave(groups, 2)
            if k == 1:
                first_keys, first_values = key.transpose(1, 2), value.transpose(1, 2)
            else:
                own_keys.append(key.transpose(1, 2))
                own_values.append(value.transpose(1, 2))
            query = (q * scale).transpose(1, 2)
            far = (query @ first_keys.mT).masked_fill(~causal, float("-inf"))  # [batch, head, row, row]
            near = [(query * other).sum(-1) for other in own_keys]  # [batch, head, row] each
            with torch.no_grad():
                top = torch.stack([far.amax(-1), *near]).amax(0)
            far = (far - top[..., None]).exp()
            near = [(score - top).exp() for score in near]
            mixed_values = far @ first_values
            total_weight = far.sum(-1, dtype=torch.float32)
            for weight, other in zip(near, own_values, strict=True):
                mixed_values = mixed_values + weight[..., None] * other
                total_weight = total_weight + weight
            mixed_values = (mixed_values / total_weight[..., None].to(mixed_values.dtype)).transpose(1, 2)
            after = state + attn.o_proj(mixed_values.reshape(batch, rows, -1))
            inner = layer.post_attention_layernorm(after)
            residual = after + layer.mlp.down_proj(F.silu(layer.mlp.gate_proj(inner)) * layer.mlp.up_proj(inner))
            normed = self.norm(residual)
            state = normed if self.config["norm_output"] else residual
            # Row i at step k predicts token i+k+1: the target's distribution after position i+k.
            real = (torch.arange(rows, device=ids.device) + k + 1 < sizes[:, None]).float()
            loss, hits = SoftCrossEntropy.apply(
                normed.flatten(0, 1), self.head, top_ids[:, k : k + rows].flatten(0, 1),
                top_probabilities[:, k : k + rows].flatten(0, 1).float(), (real / real.sum()).flatten(),
            )  # fmt: skip
            total = total + decay ** (k - 1) * loss
            agreement.append((hits * real.flatten()).sum() / real.sum())
        return total, torch.stack(agreement)
