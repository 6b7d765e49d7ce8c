"""MTP heads against transformers: its MtpModel, and loops over its decoder layers, whole sequences at every step."""

from __future__ import annotations

import dataclasses
import importlib
from typing import Any

import nnsight
import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM
from transformers.modeling_layers import MtpModel

from driftscope.chain.chain import Chain
from driftscope.chain.self_test import check_hooks
from driftscope.checkpoints.families.decoder_layer import class_config
from driftscope.drafter import build_drafter
from tests import heads
from tests.closeness import assert_same
from tests.heads import HEADS, HIDDEN
from tests.sequential import Run, Sites, chained, compare, made_text, measured, watch
from tests.support import of_head

pytestmark = pytest.mark.numeric("double")
# transformers' package -> prefix of its classes
CLASSES = {
    "deepseek_v3": "DeepseekV3", "deepseek_v32": "DeepseekV32", "glm4_moe": "Glm4Moe", "glm4_moe_lite": "Glm4MoeLite",
    "glm_moe_dsa": "GlmMoeDsa", "qwen3_next": "Qwen3Next", "qwen3_5": "Qwen3_5", "qwen3_5_moe": "Qwen3_5Moe",
    "qwen2": "Qwen2", "qwen3": "Qwen3",
}  # fmt: skip


@pytest.mark.supports("equal to", lambda name: (of_head(name), "MtpModel of transformers"))
@pytest.mark.parametrize("name", ["DeepSeek-V3", "GLM-4.5"])
def test_steps_equal_those_of_transformers_mtp_model(name: str):
    head = HEADS[name]
    # It feeds back the normed state and keeps every embedding.
    config = head.config(carry="post", mask_first_embed=False)
    tensors = heads.weights(config)
    target = class_config(head.target_json | {"num_mtp_layers": 1})
    target._attn_implementation = target._experts_implementation = "eager"
    main = AutoModelForCausalLM.from_config(target, dtype=torch.float32)
    main.model.embed_tokens.weight.data = tensors["embed_tokens.weight"]
    main.lm_head.weight.data = tensors["lm_head.weight"]
    model = MtpModel(main, 1).eval()
    peer = model.layers[0]
    peer.load_state_dict(
        {
            {"fc.weight": "eh_proj.weight", "norm.weight": "post_norm.weight"}.get(
                n, n.replace("layers.0.", "mtp_block.")
            ): tensor
            for n, tensor in tensors.items()
            if n not in ("embed_tokens.weight", "lm_head.weight")
        }
    )
    seen: Sites = {}
    watch(peer.mtp_block, seen)
    for place, site in (("enorm", "embed_norm"), ("hnorm", "state_norm"), ("eh_proj", "layer_input"),
                        ("mtp_block", "residual"), ("post_norm", "final_norm")):  # fmt: skip
        part = getattr(peer, place)
        part.register_forward_hook(lambda _, args, out, site=site: seen.update({site: out[0, -1]}))

    @torch.no_grad()
    def run(states: Tensor, tokens: Tensor, positions: Tensor) -> Sites:
        out = model.forward_layer(0, states[None], positions[None], None, input_ids=tokens[None])
        return {**seen, "state": states[-1], "carry": out[0, -1], "logits": main.lm_head(out)[0, -1]}

    drafter = heads.drafter(config, tensors)
    rest = set(drafter.step_sites) - compare(drafter, run)
    assert rest == {"embed", "layers.0.q", "layers.0.k", "layers.0.v"}


def layer_loop(name: str, config: Any, tensors: dict[str, Tensor]) -> Run:
    """A head around the decoder layer of its own model, whose attention is recorded where it is dense."""
    head = HEADS[name]
    target = class_config(head.target_json)
    package = target.model_type.removesuffix("_text")
    module = importlib.import_module(f"transformers.models.{package}.modeling_{package}")
    prefix = CLASSES[package]
    sparse = hasattr(target, "index_topk")
    target._attn_implementation, target._experts_implementation = "eager" if sparse else "recorded", "eager"
    # Layer 3 has experts and full attention in all of them.
    layer = getattr(module, f"{prefix}DecoderLayer")(target, 3).eval()
    rotary = next(
        getattr(module, n) for n in (f"{prefix}RotaryEmbedding", f"{prefix}TextRotaryEmbedding") if hasattr(module, n)
    )
    norms = {
        n: getattr(module, f"{prefix}RMSNorm")(HIDDEN, eps=config.rms_norm_eps) for n in ("enorm", "hnorm", "norm")
    }
    for n, norm in norms.items():
        norm.weight.data = tensors[f"{n}.weight"]
    own = {n.removeprefix("layers.0."): tensor for n, tensor in tensors.items() if n.startswith("layers.0.")}
    missing, surplus = layer.load_state_dict(own, strict=False)
    assert not surplus
    assert all(".indexer." in n for n in missing), missing
    turn = rotary(target)
    seen: Sites = {}
    watch(layer, seen)

    @torch.no_grad()
    def run(states: Tensor, tokens: Tensor, positions: Tensor) -> Sites:
        embed = tensors["embed_tokens.weight"][tokens]
        if config.mask_first_embed:
            embed = embed * (positions > 0)[:, None]
        pair = [norms["enorm"](embed), norms["hnorm"](states)]
        rows = torch.cat(pair if config.embed_first else pair[::-1], -1) @ tensors["fc.weight"].T
        hidden = torch.full((len(rows), len(rows)), torch.finfo(torch.float32).min).triu(1)
        out = layer(
            rows[None],
            attention_mask=hidden[None, None],
            position_ids=positions[None],
            position_embeddings=turn(rows[None], positions[None]),
            **({} if sparse else {"seen": seen}),
        )
        residual = (out[0] if isinstance(out, tuple) else out)[0, -1]
        normed = norms["norm"](residual)
        return {
            **seen, "state": states[-1], "embed": embed[-1], "embed_norm": pair[0][-1], "state_norm": pair[1][-1],
            "layer_input": rows[-1], "residual": residual, "final_norm": normed,
            "carry": normed if config.carry == "post" else residual,
            "logits": tensors["lm_head.weight"] @ normed,
        }  # fmt: skip

    return run


@pytest.mark.supports("equal to", lambda name: (of_head(name), "the model's own layer"))
@pytest.mark.parametrize("name", HEADS)
def test_steps_equal_a_loop_over_the_models_own_layer(name: str):
    config = HEADS[name].config()
    tensors = heads.weights(config)
    drafter = heads.drafter(config, tensors)
    compared = compare(drafter, layer_loop(name, config, tensors))
    # A sparse layer has no place to record them: its attention is transformers' own.
    hidden = {f"layers.0.{n}" for n in "qkv"} if "index_topk" in HEADS[name].raw else set()
    assert compared >= set(drafter.step_sites) - hidden


@pytest.mark.supports("run", of_head)
@pytest.mark.parametrize("name", HEADS)
def test_every_site_of_a_head_fires_once_a_step_and_matters(name: str):
    config = HEADS[name].config()
    drafter = heads.drafter(config, heads.weights(config))
    check_hooks(nnsight.NNsight(Chain(drafter)))
    steps = measured(drafter, made_text(drafter))
    assert_same(steps[0]["excess"], torch.zeros_like(steps[0]["excess"]), size=1)
    for step in steps:
        assert_same(step["mass"].sum(-1), torch.ones(step["mass"].shape[:-1]))


@pytest.mark.parametrize(
    ("draft_kv", "first"), [("round", lambda anchor, step: anchor), ("step", lambda anchor, step: anchor + step - 1)]
)
def test_a_draft_kv_that_starts_empty(draft_kv: str, first: Any):
    config = HEADS["MiMo-7B"].config(draft_kv=draft_kv)
    tensors = heads.weights(config)
    compare(heads.drafter(config, tensors), layer_loop("MiMo-7B", config, tensors), first)


@pytest.mark.parametrize("switch", ["carry", "mask_first_embed", "embed_first"])
def test_switches_of_a_head_matter_where_they_should(switch: str):
    config = HEADS["Qwen3.5"].config()
    other = config.replace("user", **{switch: {"carry": "pre", "mask_first_embed": True, "embed_first": False}[switch]})
    tensors = heads.weights(config)
    drafters = [heads.drafter(each, tensors) for each in (config, other)]
    plain, changed = (chained(drafter, made_text(drafter)) for drafter in drafters)
    same = [torch.equal(one["logits"], two["logits"]) for one, two in zip(plain, changed, strict=True)]
    if switch == "carry":
        assert same == [True, False, False, False]
    else:
        assert not any(same)
    if switch == "mask_first_embed":
        # Row 0 is masked itself; the other rows keep their embedding and see row 0.
        assert (plain[0]["embed"] != changed[0]["embed"]).any(1).tolist() == [True] + [False] * 7
        compare(drafters[1], layer_loop("Qwen3.5", other, tensors))


@pytest.mark.numeric("plain")
@pytest.mark.parametrize("name", ["DeepSeek-V3", "GLM-4.5", "Qwen3-Next"])
def test_a_head_in_half_precision(name: str):
    config = HEADS[name].config()
    tensors = heads.weights(config)
    half = build_drafter(
        config,
        tensors,
        target_embedding=tensors["embed_tokens.weight"],
        target_head=tensors["lm_head.weight"],
        dtype=torch.bfloat16,
    )
    kept = {n for n, slot in half.state_dict().items() if slot.dtype == torch.float32}
    routed = {"layers.0.mlp.gate.weight", "layers.0.mlp.gate.e_score_correction_bias"}
    assert kept == (set() if name == "Qwen3-Next" else routed)
    text = made_text(half)
    text = dataclasses.replace(text, features=text.features.bfloat16())
    whole = heads.drafter(config, tensors)
    for one, two in zip(chained(half, text), chained(whole, made_text(whole)), strict=True):
        assert one["logits"].dtype == torch.bfloat16
        assert torch.cosine_similarity(one["carry"].float(), two["carry"], dim=-1).median() > 0.99
