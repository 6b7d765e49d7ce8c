"""Train one example drafter with training-time test, against the target's distribution.

Three steps are unrolled at first, seven for the last third of the budget, where the learning rate falls: early on the
deeper steps cost as much as the first and teach less.
The four drafters of the pair share data, order, seed and budget; only `norm_output` (post-norm carry) and `fc_norm` differ.
With --drift-every, drift is measured along the way, which changes no weight by a bit.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

import torch
from training import batches, load_material, mean_of_last, optimizers, options, schedule, update, write
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
    parser = options(__doc__, Path("build/smollm2"))
    parser.add_argument("variant", choices=VARIANTS)
    parser.add_argument("--unroll", type=int, default=7, help="steps of the chain, at the end of training")
    parser.add_argument("--unroll-first", type=int, default=3, help="steps of the chain, at the start")
    parser.add_argument("--unroll-switch", type=float, default=0.65, help="share of the budget before the switch")
    parser.add_argument("--drift-every", type=int, default=0, metavar="N", help="measure drift every N steps; 0: never")
    args = parser.parse_args()

    material = load_material(args)
    config = drafter_config(material.target, len(material.vocabulary), args.variant)
    torch.manual_seed(args.seed)
    model = TTTDrafter(config, material.embedding, material.head).to(args.device)
    groups = optimizers(model, args.lr)
    folder = args.out / args.variant
    folder.mkdir(parents=True, exist_ok=True)
    drift = None
    if args.drift_every:
        state = material.published(model)
        drift = DriftLog(folder / "drift.jsonl", args.target, state, config)
        drift(0, 0, state)
    log, tokens, began = [], 0, time.monotonic()
    for step, batch in enumerate(batches(material, args.steps, args.batch, args.seed, args.device)):
        unroll = args.unroll if step >= args.unroll_switch * args.steps else args.unroll_first
        with torch.autocast(args.device, dtype=torch.bfloat16):
            loss, agreement = model.losses(
                batch.ids, batch.sizes, batch.features, batch.top_ids, batch.top_probabilities, unroll, args.decay
            )
        update(model, groups, loss, args.lr * schedule(step, args.steps))
        tokens += int(batch.sizes.sum())
        log.append([loss.item(), *agreement.tolist()])
        if drift and ((step + 1) % args.drift_every == 0 or step + 1 == args.steps):
            drift(step + 1, tokens, material.published(model))
        if (step + 1) % 25 == 0:
            recent = mean_of_last(log, 25)
            rate = (time.monotonic() - began) / (step + 1)
            shown = " ".join(f"{value:.3f}" for value in recent[1:].tolist())
            print(
                f"{args.variant} {step + 1}/{args.steps} loss {recent[0]:.3f} top-1 {shown} {rate:.2f} s/step",
                flush=True,
            )

    recipe = {
        "steps": args.steps, "batch": args.batch, "unroll": [args.unroll_first, args.unroll],
        "unroll_switch": args.unroll_switch, "decay": args.decay, "lr": args.lr, "seed": args.seed,
        "conversations": material.conversations, "tokens_seen": tokens, "seconds": round(time.monotonic() - began),
        "last_loss_and_top1": mean_of_last(log, 50).tolist(),
    }  # fmt: skip
    write(folder, model, material, config, recipe)


if __name__ == "__main__":
    main()
