"""Train one example drafter with training-time test, against the target's distribution.

Three steps are unrolled at first, seven for the last third of the budget, where the learning rate falls: early on the
deeper steps cost as much as the first and teach less.
The four drafters of the pair share data, order, seed and budget; only `norm_output` (post-norm carry) and `fc_norm` differ.
A run that was killed goes on from its last saved state.
With --drift-every, drift is measured along the way, which changes no weight by a bit.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

import torch
from muon import QK_SHARE, optimizers, update
from training import Material, batches, load_material, mean_of_last, options, save_state, schedule, versions, write
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


@torch.no_grad()
def warm_start(model: TTTDrafter, material: Material) -> None:
    """The drafter begins as the target's layer above boundary 27: fc passes that boundary on, the final norm is the target's."""
    hidden, layer, attn = model.config["hidden_size"], model.midlayer, model.midlayer.self_attn
    model.fc.weight.normal_(std=0.01)
    model.fc.weight[:, -hidden:] += torch.eye(hidden)
    for name in ("q_proj", "k_proj", "v_proj"):
        getattr(attn, name).weight[:, hidden:] = material.layers[f"self_attn.{name}.weight"]
    attn.o_proj.weight.copy_(material.layers["self_attn.o_proj.weight"])
    for name in ("gate_proj", "up_proj", "down_proj"):
        getattr(layer.mlp, name).weight.copy_(material.layers[f"mlp.{name}.weight"])
    layer.hidden_norm.weight.copy_(material.layers["input_layernorm.weight"])
    layer.post_attention_layernorm.weight.copy_(material.layers["post_attention_layernorm.weight"])
    model.norm.weight.copy_(material.layers["norm.weight"])


@torch.no_grad()
def largest_qk(model: TTTDrafter) -> list[float]:
    """Per head, the largest singular value of W_q W_k^T with the input norms' weights folded in."""
    norms = torch.cat([model.midlayer.input_layernorm.weight, model.midlayer.hidden_norm.weight]).float()
    attn = model.midlayer.self_attn
    query = (attn.q_proj.weight.float() * norms).unflatten(0, (model.heads, -1))
    key = (attn.k_proj.weight.float() * norms).unflatten(0, (model.kv_heads, -1))
    key = key.repeat_interleave(model.heads // model.kv_heads, 0)
    # |Q^T K| = |R_q R_k^T| with the triangular factors of both.
    small = torch.linalg.qr(query.mT).R @ torch.linalg.qr(key.mT).R.mT
    return [round(value, 3) for value in torch.linalg.matrix_norm(small, 2).tolist()]


def main() -> None:
    parser = options(__doc__, Path("build/smollm2"))
    parser.add_argument("variant", choices=VARIANTS)
    parser.add_argument("--name", help="folder of the checkpoint (default: the variant's name)")
    parser.add_argument("--cold", action="store_true", help="start from random weights, not from the target's layer 27")
    parser.add_argument("--unroll", type=int, default=7, help="steps of the chain, at the end of training")
    parser.add_argument("--unroll-first", type=int, default=3, help="steps of the chain, at the start")
    parser.add_argument("--unroll-switch", type=float, default=0.7, help="share of the budget before the switch")
    parser.add_argument(
        "--share",
        type=float,
        nargs=2,
        default=(0.5, 0.3),
        help="anchors that go on after step 1, before and after the switch",
    )
    parser.add_argument("--drift-every", type=int, default=0, metavar="N", help="measure drift every N steps; 0: never")
    args = parser.parse_args()

    material = load_material(args)
    config = drafter_config(material.target, len(material.vocabulary), args.variant)
    torch.manual_seed(args.seed)
    model = TTTDrafter(config, material.embedding, material.head).to(args.device)
    if not args.cold:
        warm_start(model, material)
    groups = optimizers(model)
    folder = args.out / (args.name or args.variant)
    folder.mkdir(parents=True, exist_ok=True)
    done = {"step": 0, "tokens": 0, "seconds": 0.0, "cpu_seconds": 0.0, "log": []}
    if (folder / "state.pt").exists():
        saved = torch.load(folder / "state.pt", map_location=args.device, weights_only=True)
        model.load_state_dict(saved["model"])
        for group, state in zip(groups, saved["optimizers"], strict=True):
            group.load_state_dict(state)
        torch.set_rng_state(saved["rng"].cpu())
        done = saved["done"]
        print(f"going on after {done['step']} updates", flush=True)
    drift = None
    if args.drift_every:
        state = material.published(model)
        drift = DriftLog(folder / "drift.jsonl", args.target, state, config)
        drift(done["step"], done["tokens"], state)
    step, log = done["step"], done["log"]
    began, cpu = time.monotonic() - done["seconds"], time.process_time() - done["cpu_seconds"]
    for tokens, batch in batches(material, args, done["tokens"]):
        progress = min(1.0, tokens / args.tokens)
        late = progress > args.unroll_switch
        with torch.autocast(args.device, dtype=torch.bfloat16, enabled=args.dtype == "bfloat16"):
            loss, agreement = model.losses(
                batch.ids, batch.sizes, batch.features, batch.top_ids, batch.top_probabilities,
                args.unroll if late else args.unroll_first, args.decay, batch.starts, args.share[late],
            )  # fmt: skip
        update(model, groups, loss, args.lr * schedule(progress, step))
        step += 1
        log.append([loss.item(), *agreement.tolist()])
        used = {"seconds": round(time.monotonic() - began, 1), "cpu_seconds": round(time.process_time() - cpu, 1)}
        if drift and step % args.drift_every == 0:
            drift(step, tokens, material.published(model))
        if step % args.save_every == 0:
            held = {"step": step, "tokens": tokens, **used, "log": log}
            save_state(folder / "state.pt", {
                "model": model.state_dict(), "optimizers": [group.state_dict() for group in groups],
                "rng": torch.get_rng_state(), "done": held,
            })  # fmt: skip
        if step % 10 == 0:
            recent = mean_of_last(log, 10)
            shown = " ".join(f"{value:.3f}" for value in recent[1:].tolist())
            print(
                f"{folder.name} {step} updates, {tokens} tokens, loss {recent[0]:.3f} top-1 {shown} "
                f"{tokens / used['cpu_seconds']:.0f} tokens a CPU second",
                flush=True,
            )
    if drift and step % args.drift_every:
        drift(step, tokens, material.published(model))
    recipe = {
        "variant": args.variant, "start": "cold" if args.cold else "target layer 27", "updates": step,
        "batch_tokens": args.batch, "unroll": [args.unroll_first, args.unroll], "unroll_switch": args.unroll_switch,
        "share_of_anchors_after_step_1": list(args.share), "decay": args.decay, "lr": args.lr, "qk_share_of_lr": QK_SHARE,
        "seed": args.seed, "conversations": material.conversations, "distinct_tokens": material.tokens,
        "tokens_seen": tokens, **used, "last_loss_and_top1": mean_of_last(log, 25).tolist(),
        "largest_singular_value_of_qk": largest_qk(model), **versions(),
    }  # fmt: skip
    write(folder, model, material, config, recipe)
    (folder / "state.pt").unlink(missing_ok=True)


if __name__ == "__main__":
    main()
