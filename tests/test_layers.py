"""The forms of a drafter's own layer against transformers' attention modules, in an EAGLE-3 layer written plainly."""

from __future__ import annotations

import dataclasses
from typing import Any

import nnsight
import pytest
import torch
from torch import Tensor, nn
from transformers import DeepseekV3Config, GptOssConfig, LlamaConfig, Qwen3NextConfig
from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3Attention, DeepseekV3RotaryEmbedding
from transformers.models.gpt_oss.modeling_gpt_oss import GptOssAttention, GptOssRotaryEmbedding
from transformers.models.llama.modeling_llama import LlamaAttention, LlamaRotaryEmbedding
from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextAttention, Qwen3NextRotaryEmbedding

from driftscope.chain.chain import Chain
from driftscope.chain.measure import BUCKETS
from driftscope.chain.self_test import check_hooks
from driftscope.checkpoints.config import DrafterConfig, Rope
from driftscope.checkpoints.sizes import expected_shapes
from tests import heads
from tests.closeness import assert_same
from tests.sequential import Run, Sites, chained, compare, made_text, measured
from tests.support import of_layer

pytestmark = pytest.mark.numeric("double")
HIDDEN, VOCAB = 24, 50
BASE = DrafterConfig(
    hidden_size=HIDDEN,
    target_hidden_size=HIDDEN,
    intermediate_size=20,
    num_heads=4,
    num_kv_heads=2,
    head_dim=8,
    vocab_size=VOCAB,
    draft_vocab_size=VOCAB,
    feature_source="final",
    num_aux=1,
    fc=False,
    # transformers norms latents with 1e-6 whatever the config says, engines with the config's.
    rms_norm_eps=1e-6,
)

YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "mscale": 1.0,
        "mscale_all_dim": 0.8, "beta_fast": 32, "beta_slow": 1}  # fmt: skip
LATENT: dict[str, Any] = {"kv_lora_rank": 8, "q_lora_rank": 10, "qk_rope_head_dim": 4, "v_head_dim": 5,
                          "num_kv_heads": 4, "head_dim": 10}  # fmt: skip
CASES: dict[str, dict[str, Any]] = {
    "latent": LATENT | {"rope": Rope(layout="interleaved", scaling=YARN, max_position=64)},
    "latent, plain q, vLLM's word": LATENT
    | {"q_lora_rank": None, "rope": Rope(5e4, YARN | {"rope_type": "deepseek_yarn"}, "interleaved", max_position=64)},
    "latent, biases": LATENT | {"attention_bias": True, "output_bias": True, "rope": Rope(layout="interleaved")},
    "learned sinks": {"learned_sinks": True, "attention_bias": True, "output_bias": True},
    "learned sinks in a window": {
        "learned_sinks": True, "attention_bias": True, "output_bias": True, "sliding_window": (3,),
    },
    "gated": {"gated_attention": True, "qk_norm": True, "norm_offset": 1.0},
    "gated, partial rope": {"gated_attention": True, "qk_norm": True, "norm_offset": 1.0, "rope": Rope(partial=0.5)},
    "window": {"sliding_window": (3,)},
    "window of one": {"sliding_window": (1,)},
    "window per layer": {"num_layers": 3, "sliding_window": (2, None, 5)},
    "later layers, hidden_norm": {"num_layers": 2, "later_layer_norm": "hidden_norm"},
}  # fmt: skip


def attention_of(c: DrafterConfig, reads: int) -> tuple[Any, Any]:
    """transformers' attention that reads `reads` features, and its rotary embedding."""
    rope = {"rope_theta": c.rope.theta, "partial_rotary_factor": c.rope.partial}
    rope |= dict(c.rope.scaling or {"rope_type": "default"})
    rope["rope_type"] = rope["rope_type"].removeprefix("deepseek_")
    common: dict[str, Any] = {
        "hidden_size": reads, "num_attention_heads": 4, "num_key_value_heads": c.num_kv_heads, "rope_parameters": rope,
        "max_position_embeddings": c.rope.max_position, "attention_bias": c.attention_bias,
        "rms_norm_eps": c.rms_norm_eps, "attn_implementation": "recorded",
    }  # fmt: skip
    made: tuple[Any, Any]
    if c.kv_lora_rank is not None:
        config: Any = DeepseekV3Config(
            q_lora_rank=c.q_lora_rank, kv_lora_rank=8, qk_nope_head_dim=6, qk_rope_head_dim=4, v_head_dim=5, **common
        )
        made = DeepseekV3Attention(config, 0), DeepseekV3RotaryEmbedding(config)
    elif c.learned_sinks:
        # Windows are in the mask that the loop makes.
        config = GptOssConfig(head_dim=8, layer_types=["full_attention"], num_hidden_layers=1, **common)
        config._attn_implementation = "eager"
        made = GptOssAttention(config, 0), GptOssRotaryEmbedding(config)
    elif c.gated_attention:
        config = Qwen3NextConfig(head_dim=8, **common)
        made = Qwen3NextAttention(config, 3), Qwen3NextRotaryEmbedding(config)
    else:
        config = LlamaConfig(head_dim=8, **common)
        made = LlamaAttention(config, 0), LlamaRotaryEmbedding(config)
    # The attention reads embedding and state, and writes a state.
    made[0].o_proj = nn.Linear(made[0].o_proj.in_features, HIDDEN, bias=c.output_bias)
    return made


def norm(x: Tensor, weight: Tensor, c: DrafterConfig) -> Tensor:
    return x * (x.square().mean(-1, keepdim=True) + c.rms_norm_eps).rsqrt() * (weight + c.norm_offset)


def eagle3_loop(c: DrafterConfig, w: dict[str, Tensor]) -> Run:
    parts = [attention_of(c, HIDDEN if j else 2 * HIDDEN) for j in range(c.num_layers)]
    for j, (attention, _) in enumerate(parts):
        place = f"layers.{j}.self_attn."
        attention.load_state_dict({n.removeprefix(place): t for n, t in w.items() if n.startswith(place)})

    @torch.no_grad()
    def run(states: Tensor, tokens: Tensor, positions: Tensor) -> Sites:
        out: Sites = {"state": states[-1]}
        embed = w["embed_tokens.weight"][tokens]
        pair = norm(embed, w["layers.0.input_layernorm.weight"], c), norm(states, w["layers.0.hidden_norm.weight"], c)
        out |= {"embed": embed[-1], "embed_norm": pair[0][-1], "state_norm": pair[1][-1]}
        residual = states
        for j, (attention, rotary) in enumerate(parts):
            p = f"layers.{j}."
            reads = torch.cat(pair, -1) if j == 0 else norm(residual, w[f"{p}{c.later_layer_norm}.weight"], c)
            back = positions[:, None] - positions
            size = (c.sliding_window or (None,) * c.num_layers)[j] or len(positions)
            mask = torch.where((back >= 0) & (back < size), 0.0, torch.finfo(torch.float32).min)
            seen: Sites = {}
            more = {} if c.learned_sinks else {"seen": seen}
            turns = rotary(reads[None], positions[None])
            update, weights = attention(reads[None], position_embeddings=turns, attention_mask=mask[None, None], **more)
            after = residual + update[0]
            inner = norm(after, w[f"{p}post_attention_layernorm.weight"], c)
            gate = torch.nn.functional.silu(inner @ w[f"{p}mlp.gate_proj.weight"].T)
            mlp = (gate * (inner @ w[f"{p}mlp.up_proj.weight"].T)) @ w[f"{p}mlp.down_proj.weight"].T
            out |= {f"{p}{n.rpartition('.')[2]}": paired(value, n, c) for n, value in seen.items()}
            out |= {f"{p}attention": weights[0, :, -1], f"{p}attn_update": update[0, -1], f"{p}after_attn": after[-1],
                    f"{p}mlp_update": mlp[-1]}  # fmt: skip
            residual = after + mlp
        normed = norm(residual, w["norm.weight"], c)
        out |= {"residual": residual[-1], "carry": residual[-1], "final_norm": normed[-1]}
        return out | {"logits": w["lm_head.weight"] @ normed[-1]}

    return run


def paired(value: Tensor, name: str, c: DrafterConfig) -> Tensor:
    """transformers leaves the two entries of a turned pair half the width apart; here they stay neighbours."""
    if c.kv_lora_rank is None or name.endswith(".v"):
        return value
    plain, turned = value[..., :6], value[..., 6:]
    return torch.cat([plain, torch.stack(turned.chunk(2, -1), -1).flatten(-2)], -1)


def built(changes: dict[str, Any]) -> tuple[DrafterConfig, dict[str, Tensor], Any]:
    config = dataclasses.replace(BASE, **changes)
    tensors = heads.weights(config)
    return config, tensors, heads.drafter(config, tensors)


@pytest.mark.supports("equal to", lambda name: of_layer(name) and (of_layer(name), "attention of transformers"))
@pytest.mark.parametrize("name", CASES)
def test_steps_equal_a_loop_over_transformers_attention(name: str):
    config, tensors, drafter = built(CASES[name])
    compared = compare(drafter, eagle3_loop(config, tensors))
    rest = set(drafter.step_sites) - compared
    assert rest == ({"layers.0.q", "layers.0.k", "layers.0.v"} if config.learned_sinks else set())


@pytest.mark.supports("run", of_layer)
@pytest.mark.parametrize("name", CASES)
def test_hooks_see_every_site(name: str):
    _, _, drafter = built(CASES[name])
    check_hooks(nnsight.NNsight(Chain(drafter)))


@pytest.mark.parametrize("name", [*CASES, "wide"])
def test_expected_shapes_are_those_of_the_module(name: str):
    wide = {"layer_form": "eagle1", "fc": True, "fc_mlp": True, "wide_output": True, "carry": "second"}
    config, _, drafter = built(CASES.get(name, wide))
    shapes = expected_shapes(dataclasses.replace(config, embedding="own"))
    assert {n: tuple(slot.shape) for n, slot in drafter.state_dict().items()} == shapes


def test_learned_sinks_take_the_mass_that_no_key_has():
    config, tensors, drafter = built(CASES["learned sinks"])
    assert drafter.learned_sinks
    assert not built({})[2].learned_sinks
    text = made_text(drafter)
    steps = measured(drafter, text)
    for step in steps:
        assert_same(step["mass"].sum(-1), torch.ones(step["mass"].shape[:-1]))
        assert (step["mass"][..., BUCKETS.index("virtual")] > 0).all()
    assert_same(steps[0]["excess"], torch.zeros_like(steps[0]["excess"]), size=1)
    tensors["layers.0.self_attn.sinks"] = torch.full((4,), -1e4)
    none, plain = (
        chained(heads.drafter(dataclasses.replace(config, learned_sinks=on), tensors), text) for on in (True, False)
    )
    assert all(torch.equal(one["carry"], two["carry"]) for one, two in zip(none, plain, strict=True))
