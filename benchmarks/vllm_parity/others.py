"""Drafters of other forms for the comparison, made from the example pair: nothing that vLLM runs should go untested.

    python benchmarks/vllm_parity/others.py CHECKPOINT --target TARGET [-o build/benchmarks/vllm_parity/others]

CHECKPOINT is an EAGLE-3 drafter with a norm per aux feature. They are not trained: what they draft is compared, not how
well. Each is the trained one, or the target itself, with random weights added where its form asks for some.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from driftscope.checkpoints import open_checkpoint
from driftscope.checkpoints.config import DrafterConfig
from driftscope.checkpoints.save import save_checkpoint
from driftscope.checkpoints.sizes import expected_shapes
from driftscope.target.model import Target, load_target

Weights = dict[str, Tensor]


def completed(config: DrafterConfig, weights: Mapping[str, Tensor], seed: int) -> Weights:
    """The weights that the config asks for: the given ones where they fit, else random, norms near 1."""
    generator = torch.Generator().manual_seed(seed)
    found: Weights = {name: weights[name] for name in ("d2t", "t2d") if name in weights and config.vocab_map != "none"}
    for name, shape in expected_shapes(config).items():
        if name in found:
            continue
        noise = torch.randn(*shape, generator=generator) * (0.2 if len(shape) == 1 else 0.02)
        if "norm" in name:
            noise += 1
        fits = name in weights and weights[name].shape == shape
        found[name] = weights[name] if fits else noise.bfloat16()
    return found


def switched(config: DrafterConfig, weights: Mapping[str, Tensor], target: Target) -> tuple[DrafterConfig, Weights]:
    """Two layers, the normed state as residual, both norms before fc, other boundaries, an embedding of its own."""
    n = target.num_layers
    changed = config.replace(
        "user",
        num_layers=2,
        residual="normed",
        input_norm=True,
        carry="pre",
        aux_boundaries=(1, n // 2 - 1, n - 4),
        embedding="own",
        sliding_window=None,
    )
    made = completed(changed, weights, seed=1)
    made["embed_tokens.weight"] += target.embedding_weight.bfloat16()
    return changed, made


def whole_vocabulary(
    config: DrafterConfig, weights: Mapping[str, Tensor], target: Target
) -> tuple[DrafterConfig, Weights]:
    """Every token can be drafted, the head is the target's, and the projections of attention have biases.

    Also the output's: vLLM makes one wherever the config says attention_bias, and runs what lies there if none is stored.
    """
    changed = config.replace(
        "user",
        draft_vocab_size=config.vocab_size,
        vocab_map="none",
        head="target",
        attention_bias=True,
        output_bias=True,
        fc_norm=False,
    )
    return changed, completed(changed, weights, seed=2)


def eagle1(config: DrafterConfig, target: Target) -> tuple[DrafterConfig, Weights]:
    """EAGLE-1: the last state as it is and a little of the embedding, through a random layer."""
    changed = config.replace(
        "user",
        layer_form="eagle1",
        feature_source="final",
        aux_boundaries=None,
        num_aux=1,
        fc_norm=False,
        final_norm=False,
        state_norm=False,
        carry="pre",
        head="target",
        draft_vocab_size=config.vocab_size,
        vocab_map="none",
    )
    weights = completed(changed, {}, seed=3)
    weights["fc.weight"][:, config.hidden_size :] += torch.eye(config.hidden_size).bfloat16()
    return changed, weights


def mimo(folder: Path, source: Path, scale: float = 0.02) -> None:
    """The target with a random MTP head of MiMo-7B in its own folder; its layers are Qwen2's with biases of 0."""
    config = json.loads((source / "config.json").read_text("utf-8"))
    model = load_file(source / "model.safetensors")
    hidden, dtype = config["hidden_size"], model["model.embed_tokens.weight"].dtype
    generator = torch.Generator().manual_seed(4)

    def random(*shape: int) -> Tensor:
        values = torch.randn(*shape, generator=generator) * (0.2 if len(shape) == 1 else scale)
        return (values + 1 if len(shape) == 1 else values).to(dtype)

    last, head = f"model.layers.{config['num_hidden_layers'] - 1}.", "model.mtp_layers.0."
    for name in [name for name in model if name.endswith(("q_proj.weight", "k_proj.weight", "v_proj.weight"))]:
        model[name.replace(".weight", ".bias")] = torch.zeros(len(model[name]), dtype=dtype)
    block = {name.removeprefix(last): tensor for name, tensor in model.items() if name.startswith(last)}
    model |= {head + name: random(*tensor.shape) for name, tensor in block.items()}
    model |= {f"{head}{name}_layernorm.weight": random(hidden) for name in ("token", "hidden", "final")}
    projection = random(hidden, 2 * hidden)
    projection[:, :hidden] += torch.eye(hidden, dtype=dtype)
    model[head + "input_proj.weight"] = projection
    model["lm_head.weight"] = model["model.embed_tokens.weight"].clone()
    folder.mkdir(parents=True, exist_ok=True)
    for file in source.iterdir():
        if file.suffix in (".json", ".jinja") and file.name != "config.json":
            shutil.copy(file, folder)
    config |= {"model_type": "qwen2", "architectures": ["MiMoForCausalLM"], "num_nextn_predict_layers": 1}
    config |= {"use_sliding_window": False, "tie_word_embeddings": False}
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
    save_file(model, folder / "model.safetensors", metadata={"format": "pt"})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint")
    parser.add_argument("--target", required=True)
    parser.add_argument("-o", "--out", type=Path, default=Path("build/benchmarks/vllm_parity/others"))
    given = parser.parse_args()
    trained = open_checkpoint(given.checkpoint)
    target = load_target(given.target, device="cpu")
    made: dict[str, tuple[str, tuple[DrafterConfig, Weights]]] = {
        "switched": ("vllm", switched(trained.config, trained.weights, target)),
        "whole-vocabulary": ("vllm", whole_vocabulary(trained.config, trained.weights, target)),
        "speculators": ("speculators", (trained.config, dict(trained.weights))),
        "eagle1": ("eagle1", eagle1(trained.config, target)),
    }
    for name, (layout, (config, weights)) in made.items():
        extra: dict[str, Any] = {}
        if layout == "speculators":
            extra = speculators_config(given.target)
        save_checkpoint(given.out / name, config, weights, layout, extra)
    mimo(given.out / "mimo-mtp", Path(given.target))
    print(f"written to {given.out}")


def speculators_config(target: str) -> dict[str, Any]:
    """The part of that format that only engines read."""
    method = {"proposal_type": "greedy", "speculative_tokens": 3}
    verifier = {"name_or_path": target, "architectures": ["LlamaForCausalLM"]}
    algorithm = {"algorithm": "eagle3", "proposal_methods": [method], "default_proposal_method": "greedy"}
    return {"speculators_config": {**algorithm, "verifier": verifier}}


if __name__ == "__main__":
    main()
