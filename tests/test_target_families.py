"""What is captured of every kind of target equals what its own forward passes, one text and one token at a time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import Tensor

from driftscope.captures.capture import capture
from driftscope.errors import TargetError
from driftscope.target.model import Target, load_target, wrap_target
from tests.closeness import assert_same
from tests.tiny_target import EOS, ROUNDED, VOCAB, tiny_config, tiny_model, tiny_prompts, tiny_tokenizer

pytestmark = pytest.mark.numeric("plain")
LAYERS = 4
SPARSE = {"num_experts_per_tok": 2, "moe_intermediate_size": 16}
MLA = {
    "num_key_value_heads": 4, "kv_lora_rank": 8, "q_lora_rank": 8, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 8,
    "head_dim": 4,
}  # fmt: skip
ROUTED = {
    **SPARSE,
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "n_group": 2,
    "topk_group": 1,
    "first_k_dense_replace": 2,
}
HYBRID = {
    "layer_types": ["linear_attention", "linear_attention", "linear_attention", "full_attention"],
    "linear_num_key_heads": 2, "linear_num_value_heads": 2, "linear_key_head_dim": 8, "linear_value_head_dim": 8,
}  # fmt: skip
ALTERNATING = {"layer_types": ["sliding_attention", "full_attention"] * 2, "sliding_window": 6}
TEXT: dict[str, tuple[str, dict[str, Any]]] = {
    "Llama": ("llama", {}),
    "Llama, tied embeddings": ("llama", {"tie_word_embeddings": True}),
    "Mistral, sliding window": ("mistral", {"sliding_window": 6}),
    "Qwen2": ("qwen2", {}),
    "Qwen3": ("qwen3", {}),
    "Qwen3 MoE": ("qwen3_moe", {**SPARSE, "num_experts": 4}),
    "Qwen3-Next, hybrid": ("qwen3_next", {**HYBRID, **SPARSE, "num_experts": 4, "shared_expert_intermediate_size": 16}),
    "Qwen3.5, hybrid": ("qwen3_5_text", HYBRID),
    "gpt-oss, learned sinks": ("gpt_oss", {**ALTERNATING, "num_local_experts": 4, "num_experts_per_tok": 2}),
    "DeepSeek-V3, latent attention": ("deepseek_v3", {**MLA, **ROUTED}),
    "GLM-4.5": ("glm4_moe", {**ROUTED, "use_qk_norm": True}),
    "Gemma 2": ("gemma2", {**ALTERNATING, "query_pre_attn_scalar": 8, "final_logit_softcapping": 5.0}),
    "Gemma 3": ("gemma3_text", {**ALTERNATING, "query_pre_attn_scalar": 8}),
}
SEEING = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}


def seeing(kind: str, text: str, vision: dict[str, Any], **more: Any) -> Callable[[], Any]:
    """A multimodal model around a text model."""

    def make() -> Any:
        inner = tiny_config(text, **TEXT_CHANGES.get(text, {})).to_dict()
        config = transformers.CONFIG_MAPPING[kind](text_config=inner, vision_config=vision, **more)
        torch.manual_seed(0)
        return transformers.AutoModelForImageTextToText.from_config(config, dtype=torch.float32)

    return make


TEXT_CHANGES: dict[str, dict[str, Any]] = {
    "gemma3_text": {**ALTERNATING, "query_pre_attn_scalar": 8},
    "qwen2_5_vl_text": {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [1, 1, 2]}},
}
WRAPPED: dict[str, Callable[[], Any]] = {
    "LLaVA": seeing(
        "llava", "llama", {"model_type": "clip_vision_model", **SEEING, "image_size": 8, "patch_size": 4}, image_token_index=59,
    ),
    "Gemma 3, multimodal": seeing(
        "gemma3", "gemma3_text", {"model_type": "siglip_vision_model", **SEEING, "image_size": 8, "patch_size": 4},
        mm_tokens_per_image=4, image_token_index=59, boi_token_index=58, eoi_token_index=57,
    ),
    "Qwen2.5-VL": seeing(
        "qwen2_5_vl", "qwen2_5_vl_text",
        {"hidden_size": 16, "intermediate_size": 16, "depth": 1, "num_heads": 2, "out_hidden_size": 32,
         "fullatt_block_indexes": [0]},
        image_token_id=59, video_token_id=58, vision_start_token_id=57, vision_end_token_id=56,
    ),
}  # fmt: skip
NAMES = (*TEXT, *WRAPPED)


def family(name: str) -> Target:
    if name in WRAPPED:
        return wrap_target(WRAPPED[name](), tiny_tokenizer(), name=name)
    kind, changes = TEXT[name]
    return wrap_target(tiny_model(kind, **changes), tiny_tokenizer(), name=name)


def by_hand(target: Target, prompt: tuple[int, ...], new: int) -> tuple[list[int], list[Tensor], Tensor]:
    """Greedy text, the input of every layer and of the final norm, and its output: plain hooks, no batch and no KV cache."""
    text = list(prompt)
    with torch.no_grad():
        for _ in range(new):
            text.append(int(target.model(input_ids=torch.tensor([text]), use_cache=False).logits[0, -1].argmax()))
            if text[-1] in target.eos_ids:
                break
        states: list[Tensor] = []
        ends: list[Tensor] = []

        def keep(module: Any, given: Any, named: dict[str, Any]) -> None:
            states.append((given[0] if given else named["hidden_states"])[0].clone())

        hooks = [m.register_forward_pre_hook(keep, with_kwargs=True) for m in (*target.layers, target.final_norm)]
        hooks.append(target.final_norm.register_forward_hook(lambda _, given, output: ends.append(output[0])))
        target.model(input_ids=torch.tensor([text]), use_cache=False)
        for hook in hooks:
            hook.remove()
    return text, states, ends[0]


@pytest.mark.supports("captured", lambda name: name)
@pytest.mark.parametrize("name", NAMES)
def test_a_capture_is_what_the_model_passes_on(name: str) -> None:
    """Prompts of different lengths in one batch, padded on the left, against one text at a time."""
    target = family(name)
    assert (target.num_layers, target.hidden_size, target.vocab_size) == (LAYERS, 32, VOCAB)
    prompts = tiny_prompts(11, 3, 7)
    batched = capture(target, prompts, max_new_tokens=6, boundaries=range(LAYERS + 1))
    for prompt, item in zip(prompts, batched, strict=True):
        text, states, final = by_hand(target, prompt.token_ids, 6)
        assert item.token_ids.tolist() == text
        assert len(states) == LAYERS + 1
        for b, state in enumerate(states):
            assert_same(item.boundaries[b], state, **ROUNDED)
        assert_same(item.final, final, **ROUNDED)
        assert_same(item.rms, torch.stack([s.square().mean(-1).sqrt() for s in states]), **ROUNDED)
        # The last boundary is before the final norm, which changes it.
        assert_same(target.final_norm(item.boundaries[LAYERS]), item.final, **ROUNDED)
        assert not torch.allclose(item.boundaries[LAYERS], item.final, atol=1e-2)
        logits = target.model(input_ids=item.token_ids[None], use_cache=False).logits[0]
        assert_same(target.head(item.final), logits, **ROUNDED)
        assert not item.near_tie.any()


def test_tied_embeddings_are_one_matrix() -> None:
    target = family("Llama, tied embeddings")
    assert target.head_weight is target.embedding_weight


def write_gguf(model: Any, path: Path) -> None:
    """A Llama as llama.cpp's converter writes it, with a byte-level tokenizer."""
    import gguf

    config = model.config
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    words = ["w", "0", *(f"w{i}" for i in range(EOS - 2)), "</s>"]
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(words)
    writer.add_token_types([1] * EOS + [3])
    writer.add_token_merges(["w 0"])
    writer.add_eos_token_id(EOS)
    writer.add_bos_token_id(EOS)
    names = {
        "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
        "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
    }  # fmt: skip
    for name, tensor in model.state_dict().items():
        short = name.removeprefix("model.").removesuffix(".weight")
        value = tensor.numpy()
        if short.startswith("layers."):
            _, number, part = short.split(".", 2)
            if part in ("self_attn.q_proj", "self_attn.k_proj"):
                # llama.cpp rotates neighbours, not halves.
                value = (
                    value.reshape(-1, 2, config.head_dim // 2, config.hidden_size).swapaxes(1, 2).reshape(value.shape)
                )
            stored = f"blk.{number}.{names[part]}.weight"
        else:
            stored = {"embed_tokens": "token_embd", "norm": "output_norm", "lm_head": "output"}[short] + ".weight"
        writer.add_tensor(stored, np.ascontiguousarray(value))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.supports("captured", "GGUF file")
def test_a_gguf_file_is_a_target(tmp_path: Path) -> None:
    model = tiny_model("llama", rms_norm_eps=1e-5)
    write_gguf(model, tmp_path / "tiny.gguf")
    target = load_target(tmp_path / "tiny.gguf", device="cpu")
    assert target.dtype == torch.float32
    assert target.eos_ids == {EOS}
    ids = torch.tensor([[5, 6, 7, 8, 9]])
    assert_same(target.forward(ids).logits, model(input_ids=ids).logits, **ROUNDED)
    (item,) = capture(target, tiny_prompts(5), max_new_tokens=4, boundaries=[2])
    text, states, _ = by_hand(target, tiny_prompts(5)[0].token_ids, 4)
    assert item.token_ids.tolist() == text
    assert_same(item.boundaries[2], states[2], **ROUNDED)


def test_other_files_are_no_target(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(
        TargetError, match=r"model\.safetensors: a file; expected a Hugging Face model folder or a \.gguf file"
    ):
        load_target(tmp_path / "model.safetensors")
    (tmp_path / "tiny.gguf").write_bytes(b"GGUF")
    with pytest.raises(TargetError, match="cannot load its config") as caught:
        load_target(tmp_path / "tiny.gguf")
    assert "\n" not in str(caught.value)
