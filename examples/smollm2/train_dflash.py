"""Train the example block drafter (DFlash) on the data, features and budget of the four EAGLE-3 drafters.

The block of anchor t stands at positions t+1 .. t+B: the known token, then masks. Its rows attend to the fused features
of positions 0..t and to each other; the mask at t+1+k is to predict the token there, as step k of a chain does. Anchors are
drawn anew for every batch, so many of each conversation that an update costs what one of the others does.
"""

from __future__ import annotations

import time
from pathlib import Path

import torch
from muon import optimizers, update
from torch import Tensor, nn
from torch.nn import functional as F
from training import batches, load_material, mean_of_last, options, schedule, versions, write
from ttt import Norm, SoftCrossEntropy

BOUNDARIES = (2, 15, 27)
MASK_TOKEN = 16
"""`<empty_output>`, which no conversation holds."""


def drafter_config(target_config, draft_vocab: int, block: int) -> dict:
    """A config.json as speculators writes it. Two narrow layers have as many weights as the one of the EAGLE drafters."""
    layer = {
        "model_type": "qwen3", "hidden_size": target_config.hidden_size, "intermediate_size": 576,
        "num_attention_heads": 9, "num_key_value_heads": 3, "head_dim": 64, "num_hidden_layers": 2, "hidden_act": "silu",
        "rms_norm_eps": 1e-5, "max_position_embeddings": 2048, "vocab_size": target_config.vocab_size,
        "attention_bias": False, "rope_parameters": {"rope_type": "default", "rope_theta": 100000.0},
    }  # fmt: skip
    return {
        "architectures": ["DFlashDraftModel"], "speculators_model_type": "dflash", "transformer_layer_config": layer,
        "draft_vocab_size": draft_vocab, "block_size": block, "aux_hidden_state_layer_ids": list(BOUNDARIES),
        "mask_token_id": MASK_TOKEN, "sample_from_anchor": False, "torch_dtype": "bfloat16",
        "speculators_config": {
            "algorithm": "dflash", "verifier": {"name_or_path": "HuggingFaceTB/SmolLM2-135M-Instruct"},
        },
    }  # fmt: skip


class BlockLayer(nn.Module):
    """A Qwen3 layer whose names are those of the published layout."""

    def __init__(self, config: dict) -> None:
        super().__init__()
        hidden, inner, eps = config["hidden_size"], config["intermediate_size"], config["rms_norm_eps"]
        self.heads, self.kv_heads, self.head_dim = (
            config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"]
        )  # fmt: skip
        self.theta = config["rope_parameters"]["rope_theta"]
        self.input_layernorm, self.post_attention_layernorm = Norm(hidden, eps), Norm(hidden, eps)
        self.self_attn = nn.Module()
        self.self_attn.q_proj = linear(self.heads * self.head_dim, hidden)
        self.self_attn.k_proj = linear(self.kv_heads * self.head_dim, hidden)
        self.self_attn.v_proj = linear(self.kv_heads * self.head_dim, hidden)
        self.self_attn.o_proj = linear(hidden, self.heads * self.head_dim)
        self.self_attn.q_norm, self.self_attn.k_norm = Norm(self.head_dim, eps), Norm(self.head_dim, eps)
        self.mlp = nn.Module()
        self.mlp.gate_proj, self.mlp.up_proj = linear(inner, hidden), linear(inner, hidden)
        self.mlp.down_proj = linear(hidden, inner)

    def rotate(self, x: Tensor, positions: Tensor) -> Tensor:
        """x [batch, row, head, dim] at positions [batch, row]."""
        half = self.head_dim // 2
        inverse = self.theta ** (-torch.arange(half, device=x.device) / half)
        angles = positions[..., None].float() * inverse
        cos, sin = angles.cos()[:, :, None].to(x.dtype), angles.sin()[:, :, None].to(x.dtype)
        low, high = x.split(half, -1)
        return torch.cat([low * cos - high * sin, high * cos + low * sin], -1)

    def keys(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values [batch, head, row, dim], repeated for the query heads that share them."""
        attn, groups = self.self_attn, self.heads // self.kv_heads
        key = attn.k_norm(attn.k_proj(x).unflatten(-1, (self.kv_heads, self.head_dim)))
        value = attn.v_proj(x).unflatten(-1, (self.kv_heads, self.head_dim))
        both = (self.rotate(key, positions), value)
        return tuple(part.repeat_interleave(groups, 2).transpose(1, 2) for part in both)

    def forward(self, x: Tensor, positions: Tensor, context: Tensor, seen: Tensor) -> Tensor:
        """x [batch, anchor, B, H] at positions [batch, anchor, B]; context [batch, T, H], its rows `seen` [batch, anchor, T]."""
        batch, anchors, block, _ = x.shape
        attn, normed = self.self_attn, self.input_layernorm(x).flatten(1, 2)
        query = attn.q_norm(attn.q_proj(normed).unflatten(-1, (self.heads, self.head_dim)))
        query = (self.rotate(query, positions.flatten(1)) * self.head_dim**-0.5).transpose(1, 2)
        own_key, own_value = (part.unflatten(2, (anchors, block)) for part in self.keys(normed, positions.flatten(1)))
        rows = torch.arange(context.shape[1], device=x.device).expand(batch, -1)
        key, value = self.keys(context, rows)
        far = (query @ key.mT).unflatten(2, (anchors, block)).masked_fill(~seen[:, None, :, None], float("-inf"))
        near = query.unflatten(2, (anchors, block)) @ own_key.mT
        weights = torch.cat([far, near], -1).float().softmax(-1).to(value.dtype)
        far, near = weights.split([context.shape[1], block], -1)
        mixed = (far.flatten(2, 3) @ value).unflatten(2, (anchors, block)) + near @ own_value
        after = x + attn.o_proj(mixed.permute(0, 2, 3, 1, 4).flatten(3))
        inner = self.post_attention_layernorm(after)
        return after + self.mlp.down_proj(F.silu(self.mlp.gate_proj(inner)) * self.mlp.up_proj(inner))


class BlockTrainer(nn.Module):
    """The drafter, and its loss over blocks at drawn anchors."""

    def __init__(self, config: dict, embedding: Tensor, head: Tensor) -> None:
        super().__init__()
        self.block, self.mask = config["block_size"], config["mask_token_id"]
        inner = config["transformer_layer_config"]
        hidden, eps = inner["hidden_size"], inner["rms_norm_eps"]
        self.fc = linear(hidden, len(BOUNDARIES) * hidden)
        self.hidden_norm = Norm(hidden, eps)
        self.layers = nn.ModuleList(BlockLayer(inner) for _ in range(inner["num_hidden_layers"]))
        self.norm = Norm(hidden, eps)
        self.register_buffer("embedding", embedding, persistent=False)
        self.register_buffer("head", head, persistent=False)

    def forward(self, ids: Tensor, features: Tensor, anchors: Tensor) -> Tensor:
        """ids [batch, T]; features [batch, T, 3, H]; anchors [batch, anchor]. The normed states [batch, anchor, B, H]."""
        context = self.hidden_norm(self.fc(features.flatten(2)))
        tokens = torch.full((*anchors.shape, self.block), self.mask, device=ids.device)
        tokens[..., 0] = ids.gather(1, anchors + 1)
        x = F.embedding(tokens, self.embedding)
        positions = anchors[..., None] + 1 + torch.arange(self.block, device=ids.device)
        seen = torch.arange(ids.shape[1], device=ids.device) <= anchors[..., None]
        for layer in self.layers:
            x = layer(x, positions, context, seen)
        return self.norm(x)

    def losses(
        self, ids: Tensor, sizes: Tensor, features: Tensor, top_ids: Tensor, top_probabilities: Tensor,
        anchors: Tensor, decay: float,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """As TTTDrafter.losses, over the steps 1 .. B-1 of the blocks at `anchors`."""
        states = self(ids, features, anchors)
        total, agreement = states.new_zeros((), dtype=torch.float32), []
        for k in range(1, self.block):
            # The mask of step k predicts token t+k+1: the target's distribution after position t+k.
            real = (anchors + k + 1 < sizes[:, None]).float()
            place = (anchors + k).clamp(max=ids.shape[1] - 1)[..., None].expand(-1, -1, top_ids.shape[-1])
            loss, hits = SoftCrossEntropy.apply(
                states[:, :, k].flatten(0, 1), self.head, top_ids.gather(1, place).flatten(0, 1),
                top_probabilities.gather(1, place).flatten(0, 1).float(), (real / real.sum()).flatten(),
            )  # fmt: skip
            total = total + decay ** (k - 1) * loss
            agreement.append((hits * real.flatten()).sum() / real.sum())
        return total, torch.stack(agreement)


def linear(outputs: int, inputs: int) -> nn.Linear:
    layer = nn.Linear(inputs, outputs, bias=False)
    nn.init.normal_(layer.weight, std=0.02)
    return layer


def draw_anchors(sizes: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """[conversation, count] anchors, at least one token short of each conversation's last step."""
    return (torch.rand(len(sizes), count, generator=generator) * (sizes[:, None] - 2)).long()


def main() -> None:
    parser = options(__doc__, Path("build/smollm2/dflash"))
    parser.add_argument("--block", type=int, default=9, help="rows of a block: the known token and the drafted ones")
    parser.add_argument("--anchors", type=int, default=96, help="blocks per conversation and update")
    args = parser.parse_args()

    material = load_material(args)
    config = drafter_config(material.target, len(material.vocabulary), args.block)
    torch.manual_seed(args.seed)
    model = BlockTrainer(config, material.embedding, material.head).to(args.device)
    groups = optimizers(model)
    args.out.mkdir(parents=True, exist_ok=True)
    drawn = torch.Generator().manual_seed(args.seed)
    log, tokens, blocks, began, cpu = [], 0, 0, time.monotonic(), time.process_time()
    for step, (tokens, batch) in enumerate(batches(material, args)):
        anchors = draw_anchors(batch.sizes.cpu(), args.anchors, drawn).to(args.device)
        with torch.autocast(args.device, dtype=torch.bfloat16, enabled=args.dtype == "bfloat16"):
            loss, agreement = model.losses(
                batch.ids, batch.sizes, batch.features, batch.top_ids, batch.top_probabilities, anchors, args.decay
            )
        update(model, groups, loss, args.lr * schedule(min(1.0, tokens / args.tokens), step))
        blocks += anchors.numel()
        log.append([loss.item(), *agreement.tolist()])
        if (step + 1) % 10 == 0:
            recent = mean_of_last(log, 10)
            rate = tokens / (time.process_time() - cpu)
            shown = " ".join(f"{value:.3f}" for value in recent[1:].tolist())
            print(
                f"{step + 1} updates, {tokens} tokens, loss {recent[0]:.3f} top-1 {shown} {rate:.0f} tokens a CPU second",
                flush=True,
            )

    recipe = {
        "updates": len(log), "batch_tokens": args.batch, "block": args.block, "anchors": args.anchors,
        "decay": args.decay, "lr": args.lr, "seed": args.seed, "conversations": material.conversations,
        "distinct_tokens": material.tokens, "tokens_seen": tokens, "blocks_seen": blocks,
        "seconds": round(time.monotonic() - began), "cpu_seconds": round(time.process_time() - cpu),
        "last_loss_and_top1": mean_of_last(log, 25).tolist(), **versions(),
    }  # fmt: skip
    write(args.out, model, material, config, recipe)


if __name__ == "__main__":
    main()
