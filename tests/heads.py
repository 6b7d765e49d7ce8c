"""Tiny MTP heads of every kind that is read: the target's config, the drafter's, and random weights."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from driftscope.checkpoints.config import DrafterConfig, Rope
from driftscope.checkpoints.families.decoder_layer import layer_config
from driftscope.checkpoints.sizes import expected_shapes
from driftscope.drafter import Drafter, build_drafter

HIDDEN, VOCAB = 24, 50
_SIZES = {"hidden_size": HIDDEN, "vocab_size": VOCAB, "intermediate_size": 20, "num_hidden_layers": 4,
          "num_attention_heads": 4, "rms_norm_eps": 1e-5, "max_position_embeddings": 256}  # fmt: skip
_EXPERTS = {"moe_intermediate_size": 12, "num_experts_per_tok": 2}
_ROUTED = {"n_routed_experts": 4, "n_shared_experts": 1, "n_group": 2, "topk_group": 1, "first_k_dense_replace": 1}
_LATENT = {"num_key_value_heads": 4, "q_lora_rank": 10, "kv_lora_rank": 8, "qk_nope_head_dim": 6, "qk_rope_head_dim": 4,
           "v_head_dim": 5}  # fmt: skip
_YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "mscale": 1.0,
         "mscale_all_dim": 0.8, "beta_fast": 32, "beta_slow": 1}  # fmt: skip
_GROUPED = {"num_key_value_heads": 2, "head_dim": 8}
_HYBRID = {"layer_types": ["linear_attention", "linear_attention", "linear_attention", "full_attention"],
           "linear_num_key_heads": 2, "linear_num_value_heads": 2, "linear_key_head_dim": 4, "linear_value_head_dim": 4,
           "num_experts": 4, "shared_expert_intermediate_size": 12}  # fmt: skip


@dataclass(frozen=True)
class Head:
    """One row: a model with its layout, and the switches that its defaults and its config come to."""

    layout: str
    raw: dict[str, Any]
    """The target's config, as its config.json holds it."""
    theta: float = 10000.0
    scaling: dict[str, Any] | None = None
    partial: float = 1.0
    offset: float = 0.0
    switches: dict[str, Any] = field(default_factory=dict)

    @property
    def target_json(self) -> dict[str, Any]:
        return self.raw | {
            "rope_parameters": {"rope_theta": self.theta, **(self.scaling or {"rope_type": "default"})}
            | ({"partial_rotary_factor": self.partial} if self.partial != 1 else {})
        }

    def config(self, **changes: Any) -> DrafterConfig:
        raw = self.raw
        latent = "kv_lora_rank" in raw
        return DrafterConfig(
            hidden_size=HIDDEN,
            target_hidden_size=HIDDEN,
            num_heads=4,
            num_kv_heads=raw["num_key_value_heads"],
            head_dim=10 if latent else 8,
            v_head_dim=5 if latent else None,
            vocab_size=VOCAB,
            draft_vocab_size=VOCAB,
            feature_source="final",
            num_aux=1,
            layer_form="mtp",
            layer_config=layer_config(self.target_json),
            rms_norm_eps=raw["rms_norm_eps"],
            norm_offset=self.offset,
            rope=Rope(self.theta, self.scaling, "interleaved" if latent else "neox", self.partial, 256),
            **{
                "intermediate_size": raw["intermediate_size"],
                "head": "target",
                "carry": "post",
                **self.switches,
                **changes,
            },
        )


HEADS = {
    "DeepSeek-V3": Head(
        "deepseek-mtp",
        {"model_type": "deepseek_v3", **_SIZES, **_EXPERTS, **_ROUTED, **_LATENT},
        scaling=_YARN,
        switches={"mask_first_embed": True, "head": "own", "embedding": "own"},
    ),
    "DeepSeek-V3.2": Head(
        "deepseek-mtp",
        {
            "model_type": "deepseek_v32",
            **_SIZES,
            **_EXPERTS,
            **_ROUTED,
            **_LATENT,
            "index_topk": 64,
            "index_n_heads": 2,
        },
        switches={"mask_first_embed": True},
    ),
    "GLM-4.5": Head(
        "deepseek-mtp",
        {
            "model_type": "glm4_moe",
            **_SIZES,
            **_EXPERTS,
            **_ROUTED,
            **_GROUPED,
            "attention_bias": True,
            "use_qk_norm": True,
        },
        theta=1e6,
        partial=0.5,
        switches={"mask_first_embed": True, "carry": "pre"},
    ),
    "GLM-4.7-Flash": Head(
        "deepseek-mtp",
        {"model_type": "glm4_moe_lite", **_SIZES, **_EXPERTS, **_ROUTED, **_LATENT},
        switches={"mask_first_embed": True, "carry": "pre"},
    ),
    "GLM-5": Head(
        "deepseek-mtp",
        {"model_type": "glm_moe_dsa", **_SIZES, **_EXPERTS, **_ROUTED, **_LATENT, "index_topk": 64, "index_n_heads": 2},
        switches={"mask_first_embed": True},
    ),
    "Qwen3-Next": Head(
        "qwen-mtp",
        {"model_type": "qwen3_next", **_SIZES, **_EXPERTS, **_GROUPED, **_HYBRID},
        theta=1e7,
        partial=0.5,
        offset=1.0,
    ),
    "Qwen3.5": Head(
        "qwen-mtp", {"model_type": "qwen3_5_text", **_SIZES, **_GROUPED}, theta=1e7, partial=0.5, offset=1.0
    ),
    "Qwen3.5 MoE": Head(
        "qwen-mtp",
        {"model_type": "qwen3_5_moe_text", **_SIZES, **_EXPERTS, **_GROUPED, **_HYBRID},
        theta=1e7,
        partial=0.5,
        offset=1.0,
        switches={"intermediate_size": 12},
    ),
    "MiMo-7B": Head(
        "mimo-mtp",
        {"model_type": "mimo", **_SIZES, "num_key_value_heads": 2, "head_dim": 8, "hidden_size": 24},
        theta=640000.0,
        switches={"mask_first_embed": True, "embed_first": False},
    ),
    "speculators Qwen3": Head("speculators-mtp", {"model_type": "qwen3", **_SIZES, **_GROUPED}, theta=1e6),
    "speculators Qwen3-Next": Head(
        "speculators-mtp",
        {"model_type": "qwen3_next", **_SIZES, **_EXPERTS, **_GROUPED, **_HYBRID},
        theta=1e7,
        partial=0.5,
        offset=1.0,
    ),
}


def weights(config: DrafterConfig, seed: int = 0, embedding: bool = True) -> dict[str, Tensor]:
    """Random weights, norms that multiply by about one; with the target's embedding and head where they are used."""
    generator = torch.Generator().manual_seed(seed)
    shapes = expected_shapes(config)
    if embedding:
        shapes |= {"embed_tokens.weight": (VOCAB, HIDDEN), "lm_head.weight": (VOCAB, HIDDEN)}
    made = {}
    for name, shape in sorted(shapes.items()):
        noise = torch.randn(shape, generator=generator)
        if "norm" in name:
            outer = name.split(".")[-2] not in ("q_a_layernorm", "kv_a_layernorm")
            made[name] = 1.0 - config.norm_offset * outer + 0.2 * noise
        else:
            made[name] = 0.3 * noise if len(shape) == 1 else noise * (1.2 / shape[-1] ** 0.5)
    return made


def drafter(config: DrafterConfig, tensors: dict[str, Tensor]) -> Drafter:
    return build_drafter(
        config, tensors, target_embedding=tensors["embed_tokens.weight"], target_head=tensors["lm_head.weight"]
    )
