"""The target as a plain float32 decoder: one static key/value cache of slots, refilled one by one, with the states kept.

On a CPU without bfloat16 units this is several times as fast as the general model: prompts of any length go through the
matrices together, without padding, and every state that a drafter learns from falls out of the pass that samples the text.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import AutoModelForCausalLM


class Decoder:
    """A Llama-like target whose keys and values lie in `slots` rows of `length` positions.

    Both passes return states [row, boundaries + 1, H]: the residual stream before the layers of `boundaries`, then the
    normed final state, which the head reads.
    """

    def __init__(self, folder: Path, slots: int, length: int, boundaries: tuple[int, ...]) -> None:
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        self.config, self.boundaries = model.config, boundaries
        self.heads, self.kv_heads = self.config.num_attention_heads, self.config.num_key_value_heads
        self.dim = self.config.hidden_size // self.heads
        self.eps = self.config.rms_norm_eps
        self.embedding, self.head = model.get_input_embeddings().weight.detach(), model.lm_head.weight.detach()
        self.final_norm = model.model.norm.weight.detach()
        self.layers = []
        for layer in model.model.layers:
            attn, mlp = layer.self_attn, layer.mlp
            self.layers.append({
                "norm": layer.input_layernorm.weight.detach(), "mlp_norm": layer.post_attention_layernorm.weight.detach(),
                "qkv": torch.cat([attn.q_proj.weight, attn.k_proj.weight, attn.v_proj.weight]).detach(),
                "o": attn.o_proj.weight.detach(), "down": mlp.down_proj.weight.detach(),
                "gate_up": torch.cat([mlp.gate_proj.weight, mlp.up_proj.weight]).detach(),
            })  # fmt: skip
        theta = self.config.rope_parameters["rope_theta"]
        angles = torch.outer(torch.arange(length).float(), theta ** (-torch.arange(self.dim // 2) / (self.dim // 2)))
        self.cos, self.sin = (torch.cat([part, part], -1) for part in (angles.cos(), angles.sin()))
        shape = (len(self.layers), slots, self.kv_heads, length, self.dim)
        self.keys, self.values = torch.zeros(shape), torch.zeros(shape)
        self.lengths = torch.zeros(slots, dtype=torch.long)

    def _rotate(self, x: Tensor, positions: Tensor) -> Tensor:
        """x [row, head, dim]."""
        low, high = x.chunk(2, -1)
        return x * self.cos[positions, None] + torch.cat([-high, low], -1) * self.sin[positions, None]

    def _layers(self, ids: Tensor, positions: Tensor, attend) -> Tensor:
        x, kept = self.embedding[ids], []
        split = (self.heads, self.kv_heads, self.kv_heads)
        for number, layer in enumerate(self.layers):
            if number in self.boundaries:
                kept.append(x)
            normed = F.rms_norm(x, x.shape[-1:], layer["norm"], self.eps)
            q, k, v = F.linear(normed, layer["qkv"]).unflatten(-1, (-1, self.dim)).split(split, 1)
            mixed = attend(number, self._rotate(q, positions), self._rotate(k, positions), v)
            x = x + F.linear(mixed.flatten(1), layer["o"])
            gate, up = F.linear(F.rms_norm(x, x.shape[-1:], layer["mlp_norm"], self.eps), layer["gate_up"]).chunk(2, -1)
            x = x + F.linear(F.silu(gate) * up, layer["down"])
        return torch.stack([*kept, F.rms_norm(x, x.shape[-1:], self.final_norm, self.eps)], 1)

    @torch.inference_mode()
    def prefill(self, slots: list[int], prompts: list[list[int]]) -> list[Tensor]:
        """Put each prompt into its slot; the states of every prompt."""
        sizes = [len(prompt) for prompt in prompts]
        ids = torch.tensor([token for prompt in prompts for token in prompt])
        positions = torch.cat([torch.arange(size) for size in sizes])

        def attend(number: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            out = []
            for slot, *parts in zip(slots, *(x.split(sizes) for x in (q, k, v)), strict=True):
                query, key, value = (part.transpose(0, 1)[None] for part in parts)
                self.keys[number, slot, :, : key.shape[2]], self.values[number, slot, :, : key.shape[2]] = (
                    key[0],
                    value[0],
                )
                mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
                out.append(mixed[0].transpose(0, 1))
            return torch.cat(out)

        states = self._layers(ids, positions, attend)
        self.lengths[slots] = torch.tensor(sizes)
        return list(states.split(sizes))

    @torch.inference_mode()
    def step(self, ids: Tensor) -> Tensor:
        """One more token in every slot; its states. A slot that is out of use costs a row, and no copy of the cache."""
        positions = self.lengths.clamp(max=self.keys.shape[3] - 1)
        longest = int(positions.max()) + 1
        slots = torch.arange(len(positions))
        seen = (torch.arange(longest) <= positions[:, None])[:, None, None]

        def attend(number: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            self.keys[number, slots, :, positions] = k
            self.values[number, slots, :, positions] = v
            keys, values = self.keys[number, :, :, :longest], self.values[number, :, :, :longest]
            grouped = q.unflatten(1, (self.kv_heads, -1))  # the query heads of one key head are its rows
            return F.scaled_dot_product_attention(grouped, keys, values, attn_mask=seen).flatten(1, 2)

        states = self._layers(ids, positions, attend)
        self.lengths += 1
        return states
