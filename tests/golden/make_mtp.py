"""Golden tensors from MTPDraftModel of speculators 0.9.0 (PyPI, Apache-2.0), on a CPU with eager attention.

    pip install --no-deps speculators==0.9.0 loguru pydantic-settings python-dotenv   # beside torch and transformers 5
    python tests/golden/make_mtp.py

The steps are those of the peer's own training forward. Its later steps attend to keys of their own step only, where an
engine keeps those of the steps before: only step 1 says how an engine runs.
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
from transformers import Qwen3Config, Qwen3NextConfig

# Imported by the package for data generation; nothing here calls them.
for absent in ("openai", "openai.types", "openai.types.chat", "openai.types.completion", "datasets", "hs_connectors"):
    sys.modules[absent] = MagicMock()

from speculators import SpeculatorsConfig, VerifierConfig  # noqa: E402
from speculators.models.mtp import MTPDraftModel, MTPSpeculatorConfig  # noqa: E402
from speculators.proposals.greedy import GreedyTokenProposalConfig  # noqa: E402

SIZES: dict[str, Any] = {
    "hidden_size": golden.HIDDEN, "intermediate_size": golden.INTERMEDIATE, "num_hidden_layers": 4,
    "num_attention_heads": golden.HEADS, "num_key_value_heads": golden.KV_HEADS, "head_dim": golden.HEAD_DIM,
    "vocab_size": golden.VOCAB, "max_position_embeddings": 512, "bos_token_id": None, "eos_token_id": None,
}  # fmt: skip
NEXT: dict[str, Any] = {
    "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8, "shared_expert_intermediate_size": 8,
    "linear_num_key_heads": 2, "linear_num_value_heads": 2, "linear_key_head_dim": 4, "linear_value_head_dim": 4,
    "layer_types": ["linear_attention"] * 3 + ["full_attention"],
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.5},
}  # fmt: skip
CASES = {
    "qwen3": (Qwen3Config(**SIZES), 0.0),
    "qwen3-next": (Qwen3NextConfig(**SIZES, **NEXT), 1.0),
}


def build(layer: Any, offset: float, seed: int) -> MTPDraftModel:
    layer._attn_implementation = layer._experts_implementation = "eager"
    config = MTPSpeculatorConfig(
        transformer_layer_config=layer,
        speculators_config=SpeculatorsConfig(
            algorithm="mtp",
            proposal_methods=[GreedyTokenProposalConfig(speculative_tokens=golden.STEPS)],
            default_proposal_method="greedy",
            verifier=VerifierConfig(name_or_path="tiny", architectures=["Tiny"]),
        ),
    )
    model = MTPDraftModel(config).float().eval()
    # As its loader does once it has the target's weights.
    del model.verifier_lm_head
    golden.randomise(model, seed)
    for name, slot in model.state_dict().items():
        if offset and "norm" in name:
            slot.sub_(offset).copy_(slot.bfloat16().float())
    return model


@torch.no_grad()
def main() -> None:
    for seed, (name, (layer, offset)) in enumerate(CASES.items(), start=40):
        model = build(layer, offset, seed)
        token_ids, features = golden.inputs(golden.HIDDEN, 100 + seed)
        carries: list[torch.Tensor] = []
        model.mtp_layers[0].register_forward_hook(lambda _, args, out, kept=carries: kept.append(out[0]))
        # The peer stops one anchor before the others do, so it gets one more token.
        longer = torch.cat([token_ids, token_ids[:1]]), torch.cat([features, features[:1]])
        logits, *_ = model(longer[0][None], longer[1][None])
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(folder)
            stored = load_file(Path(folder) / "model.safetensors")
            config = json.loads((Path(folder) / "config.json").read_text())
        golden.write(
            f"speculators-mtp-{name}",
            peer="speculators 0.9.0, MTPDraftModel",
            checkpoint=stored,
            config=config,
            token_ids=token_ids,
            features=features,
            logits=torch.stack([step[0] for step in logits], 1),
            carry=torch.stack(carries, 1),
            head=model.lm_head.weight,
            embedding=model.embed_tokens.weight,
            steps=1,
        )


if __name__ == "__main__":
    main()
