"""Train one example drafter with training-time test, against the target's distribution.

Three steps are unrolled at first, seven for the last third of the budget, where the learning rate falls: early on the
deeper steps cost as much as the first and teach less.
The four drafters of the pair share data, order, seed and budget; only `norm_output` (post-norm carry) and `fc_norm` differ.
With --drift-every, drift is measured along the way, which changes no weight by a bit.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM
from ttt import TTTDrafter

VARIANTS = {
    "eagle3": {"fc_norm": False, "norm_output": False},
    "fc-norm": {"fc_norm": True, "norm_output": False},
    "post-norm": {"fc_norm": False, "norm_output": True},
    "eagle3.1": {"fc_norm": True, "norm_output": True},
}


def drafter_config(target_config, draft_vocab: int, variant: str) -> dict:
    """A config.json in the published EAGLE-3 layout."""
    return {
        "architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "hidden_size": target_config.hidden_size,
        "intermediate_size": 1536, "num_attention_heads": 9, "num_key_value_heads": 3, "head_dim": 64,
        "num_hidden_layers": 1, "hidden_act": "silu", "rms_norm_eps": 1e-5, "rope_theta": 100000.0,
        "max_position_embeddings": 2048, "vocab_size": target_config.vocab_size, "draft_vocab_size": draft_vocab,
        "tie_word_embeddings": False, "attention_bias": False, "torch_dtype": "bfloat16", **VARIANTS[variant],
        # Says beyond doubt that norm_output means the carry.
        "eagle_config": {"return_hidden_post_norm": VARIANTS[variant]["norm_output"]},
        "target_model_name_or_path": "HuggingFaceTB/SmolLM2-135M-Instruct",
    }  # fmt: skip


def optimizers(model: TTTDrafter, lr: float) -> list[torch.optim.Optimizer]:
    """Muon for the matrices, AdamW for the norms."""
    matrices = [p for p in model.parameters() if p.ndim == 2]
    vectors = [p for p in model.parameters() if p.ndim != 2]
    return [
        torch.optim.Muon(matrices, lr=lr, weight_decay=0.1, momentum=0.95, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(vectors, lr=lr, betas=(0.9, 0.95), weight_decay=0.0),
    ]


def schedule(step: int, steps: int, warmup: int) -> float:
    """Linear warm-up, constant, then linear to zero over the last 40%."""
    return min((step + 1) / warmup, 1.0, (steps - step) / (0.4 * steps))


def published_state(model: TTTDrafter, head: torch.Tensor, vocabulary: torch.Tensor, vocab_size: int) -> dict:
    """The tensors of a published checkpoint, those of the model as they are."""
    return {
        **model.state_dict(), "lm_head.weight": head, "d2t": vocabulary - torch.arange(len(vocabulary)),
        "t2d": torch.zeros(vocab_size, dtype=torch.bool).index_fill_(0, vocabulary, True),
    }  # fmt: skip


class DriftLog:
    """Measures drift on a few prompts every so many steps, into a file of JSON lines."""

    def __init__(self, file: Path, target: Path, state: dict, config: dict) -> None:
        from driftscope.integrations import EarlyWarning, training_capture

        self.file, self.config = file, config
        self.capture = training_capture(target, state, config=config)
        self.warning = EarlyWarning(self.capture.settings.depth)
        file.write_text("")

    def __call__(self, step: int, tokens: int, state: dict) -> None:
        from driftscope.integrations import drift_metrics

        began = time.monotonic()
        metrics = drift_metrics(state, self.capture, config=self.config)
        with self.file.open("a") as lines:
            lines.write(json.dumps({"step": step, "tokens": tokens, **metrics}) + "\n")
        shown = " ".join(f"{name.removeprefix('driftscope/')} {value:.3g}" for name, value in metrics.items())
        print(f"drift at {step}: {shown} ({time.monotonic() - began:.1f} s)", flush=True)
        for line in self.warning(metrics, step):
            print(f"warning: {line}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("variant", choices=VARIANTS)
    parser.add_argument("--target", type=Path, default=Path("build/target"))
    parser.add_argument("--features", type=Path, default=Path("build/smollm2/features.safetensors"))
    parser.add_argument("--out", type=Path, default=Path("build/smollm2"))
    parser.add_argument("--steps", type=int, default=1100)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--unroll", type=int, default=7, help="steps of the chain, at the end of training")
    parser.add_argument("--unroll-first", type=int, default=3, help="steps of the chain, at the start")
    parser.add_argument("--unroll-switch", type=float, default=0.65, help="share of the budget before the switch")
    parser.add_argument("--decay", type=float, default=0.8)
    parser.add_argument("--lr", type=float, default=5e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--drift-every", type=int, default=0, metavar="N", help="measure drift every N steps; 0: never")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()

    target = AutoModelForCausalLM.from_pretrained(args.target, dtype=torch.bfloat16)
    data = load_file(args.features)
    vocabulary = data["vocabulary"]
    head = target.lm_head.weight.detach()[vocabulary].to(args.device)
    embedding = target.get_input_embeddings().weight.detach().to(args.device)
    config = drafter_config(target.config, len(vocabulary), args.variant)
    vocab_size = target.config.vocab_size
    del target
    torch.manual_seed(args.seed)
    model = TTTDrafter(config, embedding, head).to(args.device)
    groups = optimizers(model, args.lr)
    folder = args.out / args.variant
    folder.mkdir(parents=True, exist_ok=True)
    drift = None
    if args.drift_every:
        state = published_state(model, head, vocabulary, vocab_size)
        drift = DriftLog(folder / "drift.jsonl", args.target, state, config)
        drift(0, 0, state)
    order = torch.Generator().manual_seed(args.seed)
    queue: list[int] = []
    log, tokens, began = [], 0, time.monotonic()
    for step in range(args.steps):
        if len(queue) < args.batch:
            queue += torch.randperm(len(data["ids"]), generator=order).tolist()
        rows = torch.tensor([queue.pop(0) for _ in range(args.batch)])
        sizes = data["sizes"][rows]
        width = int(sizes.max())
        batch = {
            name: data[name][rows, :width].to(args.device)
            for name in ("ids", "features", "top_ids", "top_probabilities")
        }
        for group in groups:
            for inner in group.param_groups:
                inner["lr"] = args.lr * schedule(step, args.steps, 30)
        unroll = args.unroll if step >= args.unroll_switch * args.steps else args.unroll_first
        with torch.autocast(args.device, dtype=torch.bfloat16):
            loss, agreement = model.losses(
                batch["ids"].long(), sizes.to(args.device), batch["features"], batch["top_ids"].long(),
                batch["top_probabilities"], unroll, args.decay,
            )  # fmt: skip
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        for group in groups:
            group.step()
            group.zero_grad(set_to_none=True)
        tokens += int(sizes.sum())
        log.append([loss.item(), *agreement.tolist()])
        if drift and ((step + 1) % args.drift_every == 0 or step + 1 == args.steps):
            drift(step + 1, tokens, published_state(model, head, vocabulary, vocab_size))
        if (step + 1) % 25 == 0:
            width = len(log[-1])
            recent = torch.tensor([row for row in log[-25:] if len(row) == width]).mean(0)
            rate = (time.monotonic() - began) / (step + 1)
            shown = " ".join(f"{value:.3f}" for value in recent[1:].tolist())
            print(
                f"{args.variant} {step + 1}/{args.steps} loss {recent[0]:.3f} top-1 {shown} {rate:.2f} s/step",
                flush=True,
            )

    state = {
        name: value.detach().to("cpu", torch.bfloat16 if value.is_floating_point() else value.dtype).contiguous()
        for name, value in published_state(model, head, vocabulary, vocab_size).items()
    }
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    recipe = {
        "steps": args.steps, "batch": args.batch, "unroll": [args.unroll_first, args.unroll],
        "unroll_switch": args.unroll_switch, "decay": args.decay, "lr": args.lr, "seed": args.seed,
        "conversations": len(data["ids"]), "tokens_seen": tokens, "seconds": round(time.monotonic() - began),
        "last_loss_and_top1": torch.tensor([row for row in log[-50:] if len(row) == len(log[-1])]).mean(0).tolist(),
    }  # fmt: skip
    (folder / "training.json").write_text(json.dumps(recipe, indent=2) + "\n")


if __name__ == "__main__":
    main()
