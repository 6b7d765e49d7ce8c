from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import BertConfig, BertLMHeadModel, GPT2Config, GPT2LMHeadModel

from driftscope.captures.record import continue_greedily, record
from driftscope.errors import TargetError
from driftscope.target.model import load_target, wrap_target
from tests.closeness import assert_same
from tests.tiny_target import EOS, ROUNDED, VOCAB, tiny_model, tiny_prompts, tiny_target, tiny_tokenizer

FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {},
    "qwen3": {},
    "gemma2": {"final_logit_softcapping": 0.5, "query_pre_attn_scalar": 8},
    "cohere": {"logit_scale": 0.25},
    "granite": {"logits_scaling": 4.0, "embedding_multiplier": 3.0},
    "gpt_oss": {"num_local_experts": 2, "num_experts_per_tok": 1},
    "deepseek_v3": {
        "head_dim": 4,
        "num_key_value_heads": 4,
        "kv_lora_rank": 8,
        "q_lora_rank": 8,
        "qk_nope_head_dim": 8,
        "qk_rope_head_dim": 4,
        "v_head_dim": 8,
        "n_routed_experts": 4,
        "n_group": 2,
        "topk_group": 1,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 16,
        "first_k_dense_replace": 2,
    },
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "target"
    tiny_model().save_pretrained(path)
    tiny_tokenizer().save_pretrained(path)
    return path


@pytest.mark.numeric("plain")
@pytest.mark.parametrize("family", FAMILIES)
def test_parts_are_found_in_every_family(family: str) -> None:
    target = tiny_target(family, **FAMILIES[family])
    ids = torch.tensor([[5, 6, 7, 8, 9]])
    output = target.forward(ids, output_hidden_states=True)
    made = record(target, ids[0].tolist(), range(5))
    assert target.num_layers == 4
    assert (target.vocab_size, target.hidden_size) == (VOCAB, 32)
    for b in range(4):
        assert_same(made.boundaries[b], output.hidden_states[b][0], **ROUNDED)
    assert_same(made.final, output.hidden_states[4][0], **ROUNDED)
    assert_same(target.final_norm(made.boundaries[4]), made.final, **ROUNDED)
    assert_same(target.head(made.final), output.logits[0], **ROUNDED)


def test_gpt2_has_other_names() -> None:
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=VOCAB, n_embd=32, n_layer=3, n_head=2, n_positions=64))
    target = wrap_target(model, tiny_tokenizer(), name="gpt2")
    assert target.final_norm is model.transformer.ln_f
    assert target.layers is model.transformer.h


def test_loads_a_folder_in_float32_on_a_cpu(folder: Path) -> None:
    tiny_model().to(torch.bfloat16).save_pretrained(folder)
    target = load_target(folder, device="cpu")
    assert target.dtype == torch.float32
    assert load_target(folder, device="cpu", dtype=torch.bfloat16).dtype == torch.bfloat16
    assert not target.model.training
    assert not any(parameter.requires_grad for parameter in target.model.parameters())
    assert target.eos_ids == {EOS}
    assert target.tokenizer("w3 w4")["input_ids"] == [3, 4]


def test_eos_of_generation_config_joins() -> None:
    model = tiny_model()
    model.generation_config.eos_token_id = [3, 4]
    assert wrap_target(model, tiny_tokenizer(), name="x").eos_ids == {3, 4, EOS}


def test_fingerprint_follows_content(folder: Path) -> None:
    target = tiny_target()
    assert load_target(folder, device="cpu").fingerprint() == target.fingerprint()
    assert tiny_target(seed=1).fingerprint() != target.fingerprint()
    assert tiny_target(rms_norm_eps=1e-3).fingerprint() != target.fingerprint()
    changed = tiny_model()
    with torch.no_grad():
        changed.model.norm.weight[3] += 1e-3
    assert wrap_target(changed, tiny_tokenizer(), name="x").fingerprint() != target.fingerprint()


def test_greedy_ignores_the_models_own_penalties() -> None:
    target = tiny_target()
    prompt = tiny_prompts(6)[0].token_ids
    plain = continue_greedily(target, [prompt], 20)
    own = target.model.generation_config
    own.repetition_penalty, own.do_sample, own.temperature = 50.0, True, 9.0
    assert continue_greedily(target, [prompt], 20) == plain
    assert target.model.generation_config is own


def test_missing_folder() -> None:
    with pytest.raises(TargetError, match=r"^target /nowhere/model: no such folder \(--target\)$"):
        load_target("/nowhere/model")


def test_folder_without_config(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match=r"no config\.json"):
        load_target(tmp_path)


def test_folder_without_tokenizer(folder: Path) -> None:
    for file in folder.glob("*token*"):
        file.unlink()
    with pytest.raises(TargetError, match="cannot load its tokenizer") as caught:
        load_target(folder, device="cpu")
    assert "\n" not in str(caught.value)


def test_missing_weights(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 5}))
    with pytest.raises(TargetError, match=r"9 weights are missing, the first is model\.layers\.4\."):
        load_target(folder, device="cpu")


def test_truncated_weights(folder: Path) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(TargetError, match="cannot load the model") as caught:
        load_target(folder, device="cpu")
    assert "\n" not in str(caught.value)


def test_not_a_causal_model(folder: Path) -> None:
    (folder / "config.json").write_text(json.dumps({"model_type": "clip"}))
    with pytest.raises(TargetError, match="clip is not a causal language model"):
        load_target(folder, device="cpu")


def test_bidirectional_model() -> None:
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    model = BertLMHeadModel(BertConfig(vocab_size=VOCAB, initializer_range=0.3, **sizes))
    with pytest.raises(TargetError):
        wrap_target(model, tiny_tokenizer(), name="bert")


def test_head_that_cannot_be_followed() -> None:
    model = tiny_model()
    forward = model.forward

    def shifted(*args: Any, **kwargs: Any) -> Any:
        output = forward(*args, **kwargs)
        output.logits = output.logits + 1.0
        return output

    model.forward = shifted
    with pytest.raises(TargetError, match="its logits are not its LM head"):
        wrap_target(model, tiny_tokenizer(), name="x")


@pytest.mark.parametrize("device", ["gpu7", "cuda:99"])
def test_device_that_is_not_there(folder: Path, device: str) -> None:
    with pytest.raises(TargetError, match="--device"):
        load_target(folder, device=device)
