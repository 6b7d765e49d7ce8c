"""Golden tensors from Eagle3DraftModel of speculators 0.9.0 (PyPI, Apache-2.0), on a CPU with eager attention.

    pip install --no-deps speculators==0.9.0 loguru pydantic-settings python-dotenv   # beside torch and transformers 5
    python tests/golden/make_speculators.py

The steps are those of the peer's own training forward, with its own teacher forcing: step k of row i embeds token
i+k and attends to the step-1 keys of rows <= i and to its own keys of steps 2..k. Hooks read what enters the first
layer (the carry of the step before) and what leaves the head; a fifth step is unrolled for the carry of the fourth.

With a sliding window this forward keeps the window of step 1 at every step, where an engine's moves with the query:
only step 1 of that case says how an engine runs.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import golden
import torch
from safetensors.torch import load_file
from transformers import LlamaConfig, Qwen3Config

# Imported by the package for data generation; nothing here calls them.
for absent in ("openai", "openai.types", "openai.types.chat", "openai.types.completion", "datasets", "hs_connectors"):
    sys.modules[absent] = MagicMock()

from speculators.models.eagle3 import Eagle3DraftModel, Eagle3SpeculatorConfig  # noqa: E402

LLAMA3 = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
LLAMA3 |= {"original_max_position_embeddings": 64}


def case(
    fc: str = "", carry: str = "pre", residual: str = "raw", layers: str = "llama", aux: int = 3, **layer: Any
) -> dict[str, Any]:
    return {"fc": fc, "carry": carry, "residual": residual, "layers": layers, "aux": aux, "layer": layer}


TWO = {"num_hidden_layers": 2}
BIAS = {"attention_bias": True}
# Every combination of the three norm switches; kind and number of layers, biases and aux states vary along with them.
CASES = {
    "pre-norm": case(),
    "fc-norm": case("fc_norm"),
    "post-norm": case(carry="post"),
    "fc-norm-post-norm": case("fc_norm", "post"),
    "input-norm": case("norm_before_fc", layers="qwen3", aux=2),
    "input-norm-post-norm": case("norm_before_fc", "post", **BIAS, mlp_bias=True),
    "residual-normed": case(residual="normed", layers="qwen3", **BIAS),
    "fc-norm-residual-normed": case("fc_norm", residual="normed", aux=4, **BIAS, **TWO),
    "post-norm-residual-normed": case(carry="post", residual="normed", **TWO),
    "fc-norm-post-norm-residual-normed": case("fc_norm", "post", "normed", "qwen3", **TWO),
    "input-norm-residual-normed": case("norm_before_fc", residual="normed", **TWO, mlp_bias=True),
    "input-norm-post-norm-residual-normed": case("norm_before_fc", "post", "normed", "qwen3", **BIAS, **TWO),
    "rope-llama3": case(rope_parameters=LLAMA3),
    "full-vocabulary": case(layers="qwen3", vocab_size=golden.DRAFT_VOCAB),
    "window": case(layers="qwen3", use_sliding_window=True, sliding_window=5, layer_types=["sliding_attention"]),
}


def build(fc: str, carry: str, residual: str, layers: str, aux: int, layer: dict[str, Any]) -> Eagle3DraftModel:
    sizes = {
        "hidden_size": golden.HIDDEN,
        "intermediate_size": golden.INTERMEDIATE,
        "num_hidden_layers": 1,
        "num_attention_heads": golden.HEADS,
        "num_key_value_heads": golden.KV_HEADS,
        "head_dim": golden.HEAD_DIM,
        "vocab_size": golden.VOCAB,
        "max_position_embeddings": 512,
        "pad_token_id": None,
    }
    inner = {"llama": LlamaConfig, "qwen3": Qwen3Config}[layers](**(sizes | layer), attn_implementation="eager")
    config = Eagle3SpeculatorConfig(
        transformer_layer_config=inner,
        draft_vocab_size=golden.DRAFT_VOCAB,
        norm_before_residual=residual == "normed",
        norm_before_fc=fc == "norm_before_fc",
        fc_norm=fc == "fc_norm",
        norm_output=carry == "post",
        eagle_aux_hidden_state_layer_ids=[1, 3, 4, 6][:aux],
    )
    return Eagle3DraftModel(config).float().eval()


def unroll(
    model: Eagle3DraftModel, token_ids: torch.Tensor, features: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """logits and carry [row, step, ...] of the rows 0..T-2."""
    entered: list[torch.Tensor] = []
    logits: list[torch.Tensor] = []
    model.layers[0].register_forward_pre_hook(lambda _, args: entered.append(args[0][0, :, golden.HIDDEN :]))
    model.lm_head.register_forward_hook(lambda _, args, out: logits.append(out[0]))
    with torch.no_grad():
        model(
            hidden_states=features[None, :-1],
            input_ids=token_ids[None, 1:],
            document_ids=torch.zeros(1, len(token_ids) - 1, dtype=torch.long),
            ttt_steps=golden.STEPS + 1,
        )
    return torch.stack(logits[:-1], 1), torch.stack(entered[1:], 1)


def main() -> None:
    for seed, (name, switches) in enumerate(CASES.items()):
        model = build(**switches)
        golden.randomise(model, seed)
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(folder)
            stored = load_file(Path(folder) / "model.safetensors")
            config = json.loads((Path(folder) / "config.json").read_text())
        token_ids, features = golden.inputs(switches["aux"] * golden.HIDDEN, 100 + seed)
        token_ids %= model.verifier_vocab_size
        logits, carry = unroll(model, token_ids, features)
        golden.write(
            f"speculators-{name}",
            peer="speculators 0.9.0",
            checkpoint=stored,
            config=config,
            token_ids=token_ids,
            features=features,
            logits=logits,
            carry=carry,
            steps=1 if name == "window" else golden.STEPS,
        )


if __name__ == "__main__":
    main()
