"""Golden tensors from LlamaForCausalLMEagle3 of SpecForge 0.2.0 (PyPI), on a CPU with its sdpa backend.

    pip install --no-deps specforge==0.2.0          # in a venv with torch and transformers 5
    python tests/golden/make_specforge.py

The steps are those of its training forward, OnlineEagle3Model: step k of row i embeds token i+k and attends to the
step-1 keys of rows <= i and to its own keys of steps 2..k. Hooks read what enters the layer (the carry of the step
before) and what leaves the head. Its loss is a GPU kernel that nothing here depends on: zero stands in.

This release gives `norm_output` another meaning than later ones: whether the norm stands before the head. The carry
is pre-norm either way, which the config cannot tell; hence the overrides.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import types
from pathlib import Path
from typing import Any

os.environ["TORCHDYNAMO_DISABLE"] = "1"

import golden
import torch
from safetensors.torch import load_file
from transformers import LlamaConfig

loss = types.ModuleType("specforge.core.loss")
loss.LogSoftmaxLoss = types.SimpleNamespace(apply=lambda logits, *_: logits.new_zeros(()))  # type: ignore[attr-defined]
sys.modules[loss.__name__] = loss

from specforge.algorithms.eagle3.model import OnlineEagle3Model  # noqa: E402
from specforge.export.checkpoint_io import apply_legacy_rope_scaling  # noqa: E402
from specforge.modeling.draft.llama3_eagle import LlamaForCausalLMEagle3  # noqa: E402

LLAMA3 = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
LLAMA3 |= {"original_max_position_embeddings": 64}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 128}
YARN |= {"beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 0.0}
LINEAR = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0}

PRE = {"carry": "pre"}
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "pre-norm": ({"norm_output": True}, PRE),
    "fc-norm": ({"norm_output": True, "fc_norm": True}, PRE),
    "no-head-norm": ({"norm_output": False}, PRE | {"final_norm": False}),
    "target-width": ({"norm_output": True, "fc_norm": True, "target_hidden_size": 12}, PRE),
    "rope-llama3": ({"norm_output": True, "rope_parameters": LLAMA3}, PRE),
    "rope-yarn": ({"norm_output": True, "rope_parameters": YARN}, PRE),
    "rope-linear": ({"norm_output": True, "rope_parameters": LINEAR}, PRE),
}


def build(switches: dict[str, Any]) -> LlamaForCausalLMEagle3:
    config = LlamaConfig(
        hidden_size=golden.HIDDEN,
        intermediate_size=golden.INTERMEDIATE,
        num_hidden_layers=1,
        num_attention_heads=golden.HEADS,
        num_key_value_heads=golden.KV_HEADS,
        head_dim=golden.HEAD_DIM,
        vocab_size=golden.VOCAB,
        draft_vocab_size=golden.DRAFT_VOCAB,
        max_position_embeddings=512,
        pad_token_id=0,
        architectures=["LlamaForCausalLMEagle3"],
        **switches,
    )
    return LlamaForCausalLMEagle3(config, attention_backend="sdpa").float().eval()


def unroll(
    model: LlamaForCausalLMEagle3, token_ids: torch.Tensor, features: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """logits and carry [row, step, ...] of the rows 0..T-2."""
    entered: list[torch.Tensor] = []
    logits: list[torch.Tensor] = []
    model.midlayer.register_forward_pre_hook(
        lambda _, args, kwargs: entered.append(kwargs["hidden_states"][0]), with_kwargs=True
    )
    model.lm_head.register_forward_hook(lambda _, args, out: logits.append(out[0]))
    rows = len(token_ids) - 1
    ones = torch.ones(1, rows, dtype=torch.bool)
    with torch.no_grad():
        OnlineEagle3Model(model, length=golden.STEPS + 1, attention_backend="sdpa")(
            input_ids=token_ids[None, 1:],
            attention_mask=ones,
            target=torch.zeros(1, rows, golden.VOCAB),
            loss_mask=ones[..., None].int(),
            hidden_states=features[None, :-1],
        )
    return torch.stack(logits[:-1], 1), torch.stack(entered[1:], 1)


def main() -> None:
    for seed, (name, (switches, overrides)) in enumerate(CASES.items(), start=40):
        model = build(switches)
        golden.randomise(model, seed)
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(folder)
            apply_legacy_rope_scaling(folder)
            stored = load_file(Path(folder) / "model.safetensors")
            config = json.loads((Path(folder) / "config.json").read_text())
        token_ids, features = golden.inputs(3 * switches.get("target_hidden_size", golden.HIDDEN), 100 + seed)
        logits, carry = unroll(model, token_ids, features)
        golden.write(
            f"specforge-{name}",
            peer="SpecForge 0.2.0",
            checkpoint=stored,
            config=config,
            token_ids=token_ids,
            features=features,
            logits=logits,
            carry=carry,
            overrides=overrides,
        )


if __name__ == "__main__":
    main()
