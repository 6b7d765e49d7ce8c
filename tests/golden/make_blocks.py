"""Golden tensors from DFlashDraftModel and PEagleDraftModel of speculators 0.9.0 (PyPI, Apache-2.0), on a CPU.

    pip install --no-deps speculators==0.9.0 loguru pydantic-settings python-dotenv   # beside torch and transformers 5
    python tests/golden/make_blocks.py

The passes are those of the peers' own training forward, with anchors chosen here instead of drawn. Of P-EAGLE every anchor
has all of its depths. A window of DFlash is as long as the text, so that only the direction of its layers shows: the peer's
window hangs on the anchor, an engine's on the row.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock, patch

import golden
import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import LlamaConfig, Qwen3Config

# Imported by the package for data generation; nothing here calls them.
for absent in ("openai", "openai.types", "openai.types.chat", "openai.types.completion", "datasets", "hs_connectors"):
    sys.modules[absent] = MagicMock()

from speculators.models.dflash import DFlashDraftModel, DFlashSpeculatorConfig  # noqa: E402
from speculators.models.peagle import PEagleDraftModel, PEagleSpeculatorConfig  # noqa: E402

MASK = 7
ANCHORS = golden.TOKENS - golden.STEPS
SIZES: dict[str, Any] = {
    "hidden_size": golden.HIDDEN, "intermediate_size": golden.INTERMEDIATE, "num_hidden_layers": 2,
    "num_attention_heads": golden.HEADS, "num_key_value_heads": golden.KV_HEADS, "head_dim": golden.HEAD_DIM,
    "vocab_size": golden.VOCAB, "max_position_embeddings": 512, "pad_token_id": None,
}  # fmt: skip
LLAMA3 = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
LLAMA3 |= {"original_max_position_embeddings": 64}
WINDOW = {"use_sliding_window": True, "sliding_window": 64, "layer_types": ["sliding_attention", "full_attention"]}
DFLASH: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plain": ({}, {}),
    "whole-vocabulary": ({}, {"draft_vocab_size": golden.VOCAB}),
    "one-layer": ({"num_hidden_layers": 1, "rope_parameters": LLAMA3}, {"aux_hidden_state_layer_ids": [2, 3]}),
    "window": (WINDOW, {}),
    "window-both-ways": (WINDOW, {"sliding_window_non_causal": True}),
    "from-anchor": ({"attention_bias": True}, {"sample_from_anchor": True}),
}
PEAGLE: dict[str, tuple[type, dict[str, Any], dict[str, Any]]] = {
    "plain": (LlamaConfig, {"num_hidden_layers": 1}, {}),
    "fc-norm": (LlamaConfig, {}, {"fc_norm": True}),
    "input-norm": (Qwen3Config, {}, {"norm_before_fc": True, "norm_before_residual": True}),
}


def watch(model: Any) -> dict[str, Tensor]:
    """Sites of the peer by our names, filled as it runs."""
    seen: dict[str, Tensor] = {}

    def keep(name: str, module: Any, *, entering: bool = False) -> None:
        def entered(_: Any, args: Any) -> None:
            seen[name] = args[0][0].detach()

        def left(_: Any, args: Any, out: Any) -> None:
            seen[name] = (out[0] if isinstance(out, tuple) else out)[0].detach()

        if entering:
            module.register_forward_pre_hook(entered)
        else:
            module.register_forward_hook(left)

    for j, layer in enumerate(model.layers):
        keep(f"layers.{j}.attn_update", layer.self_attn.o_proj)
        keep(f"layers.{j}.after_attn", layer.post_attention_layernorm, entering=True)
        keep(f"layers.{j}.mlp_update", layer.mlp)
    keep("residual", model.norm, entering=True)
    keep("final_norm", model.norm)
    keep("logits", model.lm_head)
    return seen


@torch.no_grad()
def blocks(model: DFlashDraftModel, token_ids: Tensor, features: Tensor) -> dict[str, Tensor]:
    """Every site [anchor, step, ...]; anchor t is the peer's anchor t+1, the position of the known token."""
    seen = watch(model)
    # The peer looks a token further ahead for its targets.
    token_ids, features = torch.cat([token_ids, token_ids[:1]]), torch.cat([features, features[:1]])
    chosen = torch.arange(ANCHORS) + 1, torch.ones(ANCHORS, dtype=torch.bool)
    with patch("speculators.models.dflash.core.select_anchors", lambda *_: chosen):
        model._backbone_forward(
            hidden_states=features[None],
            input_ids=token_ids[None],
            loss_mask=torch.ones(1, len(token_ids)),
            verifier_last_hidden_states=torch.zeros(1, len(token_ids), golden.HIDDEN),
            document_ids=torch.zeros(1, len(token_ids), dtype=torch.long),
            max_anchors=ANCHORS,
        )
    first = 0 if model.config.sample_from_anchor else 1
    rows = slice(first, first + golden.STEPS)
    return {name: value.unflatten(0, (ANCHORS, model.block_size))[:, rows] for name, value in seen.items()}


@torch.no_grad()
def depths(model: PEagleDraftModel, token_ids: Tensor, features: Tensor) -> dict[str, Tensor]:
    """Every site [anchor, step, ...]."""
    seen = watch(model)
    rows = len(token_ids) - 1
    later = range(1, golden.STEPS)
    anchors = torch.cat([torch.arange(rows), *(torch.arange(ANCHORS) for _ in later)])
    depth = torch.cat([torch.zeros(rows, dtype=torch.long), *(torch.full((ANCHORS,), d) for d in later)])
    core = "speculators.models.peagle.core"
    with (
        patch(f"{core}.generate_cod_sample_indices", lambda **_: (anchors, depth)),
        patch(f"{core}.compute_metrics", lambda **_: (None, {})),
    ):
        model(
            hidden_states=features[None, :-1],
            input_ids=token_ids[None, 1:],
            document_ids=torch.zeros(1, rows, dtype=torch.long),
            verifier_last_hidden_states=torch.zeros(1, rows, golden.HIDDEN),
        )
    return {
        name: torch.stack([value[depth == d][:ANCHORS] for d in range(golden.STEPS)], 1) for name, value in seen.items()
    }


def save(name: str, model: Any, seed: int, aux: int, run: Any, *, embedding: bool) -> None:
    golden.randomise(model, seed)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        stored = load_file(Path(folder) / "model.safetensors")
        config = json.loads((Path(folder) / "config.json").read_text())
    token_ids, features = golden.inputs(aux * golden.HIDDEN, 100 + seed)
    sites = run(model, token_ids, features)
    golden.write(
        f"blocks/{name}",
        peer=f"speculators 0.9.0, {type(model).__name__}",
        checkpoint=stored,
        config=config,
        token_ids=token_ids,
        features=features,
        logits=sites.pop("logits"),
        sites=sites,
        embedding=model.embed_tokens.weight if embedding else None,
        head=None if "lm_head.weight" in stored else model.lm_head.weight,
    )


def main() -> None:
    for seed, (name, (layer, more)) in enumerate(DFLASH.items(), start=60):
        inner = Qwen3Config(**(SIZES | layer), attn_implementation="eager")
        told: dict[str, Any] = {"draft_vocab_size": golden.DRAFT_VOCAB, "aux_hidden_state_layer_ids": [1, 3, 4], **more}
        config = DFlashSpeculatorConfig(
            transformer_layer_config=inner, block_size=golden.STEPS + 1, mask_token_id=MASK, **told
        )
        model = DFlashDraftModel(config).float().eval()
        aux = len(told["aux_hidden_state_layer_ids"])
        save(f"dflash-{name}", model, seed, aux, blocks, embedding=True)
    for seed, (name, (kind, layer, more)) in enumerate(PEAGLE.items(), start=80):
        inner = kind(**(SIZES | layer), attn_implementation="eager")
        config = PEagleSpeculatorConfig(
            transformer_layer_config=inner, draft_vocab_size=golden.DRAFT_VOCAB, mask_token_id=MASK,
            eagle_aux_hidden_state_layer_ids=[1, 3, 4], **more,
        )  # fmt: skip
        model = PEagleDraftModel(config).float().eval()
        save(f"peagle-{name}", model, seed, 3, depths, embedding=False)


if __name__ == "__main__":
    main()
