"""Rounds that vLLM 0.32 (Apache-2.0) served on a CPU, with the tiny target and drafters that it served.

    python tests/golden/make_vllm_rounds.py /path/to/vllm/bin/python   # from the root of the repository

benchmarks/vllm_parity/README.md says how vLLM is installed. engines/vllm-rounds.safetensors holds the files of every folder that
was served, tensors by `folder/name`; its metadata holds their config.json, the prompts, and what serve.py wrote.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks" / "vllm_parity")]

from others import mimo  # noqa: E402

from driftscope.checkpoints.config import DrafterConfig  # noqa: E402
from driftscope.checkpoints.save import save_checkpoint  # noqa: E402
from tests import tiny, tiny_target  # noqa: E402

VOCAB, DEPTH, TOKENS = 20, 4, 24
# 32 is the smallest head that vLLM's attention takes on a CPU.
SIZES: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 40, "vocab_size": VOCAB, "head_dim": 32}
HEADS: dict[str, Any] = {"num_attention_heads": 1, "num_key_value_heads": 1}
BASE = DrafterConfig(
    **SIZES, target_hidden_size=32, num_heads=2, num_kv_heads=1, draft_vocab_size=12, vocab_map="offset",
    aux_boundaries=(1, 2, 3),
)  # fmt: skip
DRAFTERS: dict[str, tuple[str, DrafterConfig]] = {
    "eagle3": ("vllm", BASE),
    "eagle3.1": ("vllm", dataclasses.replace(BASE, fc_norm=True, carry="post")),
    "switched": (
        "vllm",
        dataclasses.replace(
            BASE, num_layers=2, residual="normed", input_norm=True, fc_norm=True, embedding="own",
            aux_boundaries=(0, 2, 4), attention_bias=True, output_bias=True, draft_vocab_size=VOCAB, vocab_map="none",
        ),
    ),
    "eagle1": (
        "eagle1",
        dataclasses.replace(
            BASE, layer_form="eagle1", feature_source="final", num_aux=1, aux_boundaries=None, state_norm=False,
            final_norm=False, head="target", draft_vocab_size=VOCAB, vocab_map="none",
        ),
    ),
}  # fmt: skip
METHODS = {"eagle1": "eagle", "mimo-mtp": "mtp"}


def write_folders(root: Path) -> None:
    model = tiny_target.tiny_model(**SIZES, **HEADS, num_hidden_layers=5, eos_token_id=None)
    model.bfloat16().save_pretrained(root / "target")
    for seed, (name, (layout, config)) in enumerate(DRAFTERS.items()):
        weights = {n: t.bfloat16() if t.is_floating_point() else t for n, t in tiny.weights(config, seed).items()}
        if config.embedding == "target":
            del weights["embed_tokens.weight"]
        if config.head == "target":
            del weights["lm_head.weight"]
        save_checkpoint(root / name, config, weights, layout)
    mimo(root / "mimo-mtp", root / "target", scale=0.25)


def main() -> None:
    interpreter = sys.argv[1]
    prompts = [{"id": p.id, "token_ids": [t % VOCAB for t in p.token_ids]} for p in tiny_target.tiny_prompts(9, 14, 22)]
    tensors: dict[str, torch.Tensor] = {}
    metadata: dict[str, str] = {"prompts": json.dumps(prompts), "tokens": str(TOKENS), "depth": str(DEPTH)}
    with tempfile.TemporaryDirectory() as held:
        root = Path(held)
        write_folders(root)
        (root / "prompts.json").write_text(json.dumps(prompts))
        for name in ("target", *DRAFTERS, "mimo-mtp"):
            folder = root / name
            tensors |= {f"{name}/{key}": tensor for key, tensor in load_file(folder / "model.safetensors").items()}
            metadata[f"{name}/config.json"] = (folder / "config.json").read_text("utf-8")
            if name == "target":
                continue
            target = folder if name == "mimo-mtp" else root / "target"
            command = [interpreter, ROOT / "benchmarks/vllm_parity/serve.py", folder, "--target", target, "-k", DEPTH]
            command += ["--prompts", root / "prompts.json", "--tokens", TOKENS + DEPTH, "-o", root / "served.json"]
            command += ["--method", METHODS.get(name, "eagle3")]
            subprocess.run([str(part) for part in command], check=True)
            metadata[f"{name}/served.json"] = (root / "served.json").read_text("utf-8")
    save_file(tensors, Path(__file__).parent / "engines" / "vllm-rounds.safetensors", metadata=metadata)


if __name__ == "__main__":
    main()
