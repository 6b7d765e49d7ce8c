"""MTP heads: read out of their target's checkpoint or alone, every flag in every place, every fault by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoModelForCausalLM

from driftscope.chain.pair import load_pair
from driftscope.checkpoints import inspect_checkpoint, open_checkpoint, open_state_dict
from driftscope.checkpoints.families.decoder_layer import class_config
from driftscope.checkpoints.families.registry import FAMILIES
from driftscope.errors import CheckpointError, TargetError
from tests.checkpoints import layouts
from tests.heads import HEADS, VOCAB, Head
from tests.tiny_target import tiny_tokenizer

NAMES = ("DeepSeek-V3", "GLM-4.5", "Qwen3-Next", "Qwen3.5", "MiMo-7B", "speculators Qwen3")


def stored(name: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """(tensors by published name, config.json) of a head alone."""
    return layouts.stored(HEADS[name].config(), HEADS[name].layout)


def opened(name: str, changes: dict[str, Any] | None = None, **more: Any):
    tensors, config = stored(name)
    return open_state_dict(tensors, config | (changes or {}), **more)


def origin(checkpoint: Any, switch: str) -> tuple[str, str]:
    found = checkpoint.config.origins[switch]
    return found.source, found.detail


def inside(name: str, prefix: str = "model.") -> dict[str, Tensor]:
    """A target's tensors under its own names: the head, and stubs of the model around it."""
    tensors, _ = stored(name)
    head = {n.replace("model.layers.0.", f"{prefix}layers.4.", 1): t for n, t in tensors.items()}
    model = {f"{prefix}layers.{i}.mlp.up_proj.weight": torch.zeros(2, 2) for i in range(4)}
    return head | model | {f"{prefix}embed_tokens.weight": torch.zeros(3, 2), "lm_head.weight": torch.zeros(3, 2)}


def shard(folder: Path, tensors: dict[str, Tensor], of: int = 3, keep: bool = True) -> None:
    """Write shards with an index, the head over the last two; without `keep` only those."""
    head = sorted(n for n in tensors if "mtp" in n or ".layers.4." in n)
    rest = sorted(tensors.keys() - set(head))
    parts = [rest[i :: max(of - 2, 1)] for i in range(max(of - 2, 1))]
    parts += [head[: len(head) // 2], head[len(head) // 2 :]] if of > 2 else []
    if of == 1:
        parts = [rest + head]
    index: dict[str, str] = {}
    for part, held in enumerate(parts, start=1):
        file = f"model-{part:05}-of-{of:05}.safetensors"
        index |= dict.fromkeys(held, file)
        if keep or part > of - 2:
            save_file({n: tensors[n] for n in held}, folder / file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))


def wrapped(head: Head) -> dict[str, Any]:
    """A multimodal target's config."""
    return {"model_type": head.raw["model_type"].removesuffix("_text"), "text_config": head.target_json}


@pytest.mark.parametrize("name", ["DeepSeek-V3", "GLM-4.5", "Qwen3-Next", "MiMo-7B"])
def test_a_head_inside_its_target_needs_only_its_own_shards(name: str, tmp_path: Path):
    head, alone = HEADS[name], opened(name)
    shard(tmp_path, inside(name), keep=False)
    (tmp_path / "config.json").write_text(json.dumps(head.target_json))
    files = {path.name for path in tmp_path.glob("*.safetensors")}
    assert files == {"model-00002-of-00003.safetensors", "model-00003-of-00003.safetensors"}
    found = open_checkpoint(tmp_path)
    assert (found.layout, found.target_name) == (head.layout, str(tmp_path))
    assert found.weights.keys() == alone.weights.keys()
    assert all(torch.equal(found.weights[n], alone.weights[n]) for n in alone.weights)
    assert found.config.switches() == alone.config.switches()
    assert found.unused == ()
    report = inspect_checkpoint(tmp_path)
    assert report.nbytes == sum(t.numel() * 4 for t in stored(name)[0].values())
    assert (report.problems, report.sha256) == ((), found.sha256)


def test_the_hash_of_a_head_does_not_depend_on_the_shards(tmp_path: Path):
    tensors = inside("DeepSeek-V3")
    hashes = set()
    for of in (1, 3, 5):
        folder = tmp_path / str(of)
        folder.mkdir()
        shard(folder, tensors, of)
        (folder / "config.json").write_text(json.dumps(HEADS["DeepSeek-V3"].target_json))
        hashes.add(open_checkpoint(folder).sha256)
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(HEADS["DeepSeek-V3"].target_json))
    hashes.add(open_checkpoint(tmp_path).sha256)
    assert len(hashes) == 1


def test_a_shard_of_the_head_that_is_not_there_is_named(tmp_path: Path):
    shard(tmp_path, inside("DeepSeek-V3"))
    (tmp_path / "model-00003-of-00003.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"names model-00003-of-00003\.safetensors, which is not there"):
        open_checkpoint(tmp_path)


def test_the_hub_is_asked_for_the_shards_of_the_head_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    shard(tmp_path, inside("Qwen3-Next"), of=4)
    (tmp_path / "config.json").write_text(json.dumps(HEADS["Qwen3-Next"].target_json))
    asked: list[list[str]] = []
    monkeypatch.setattr(
        "huggingface_hub.snapshot_download", lambda repo, **more: asked.append(more["allow_patterns"]) or str(tmp_path)
    )
    found = open_checkpoint("owner/model")
    assert found.target_name == "owner/model"
    assert asked[0] == ["*.json"]
    assert asked[1] == ["*.json", "model-00003-of-00004.safetensors", "model-00004-of-00004.safetensors"]


@pytest.mark.parametrize("name", ["Qwen3.5", "Qwen3.5 MoE"])
def test_a_head_of_a_multimodal_target(name: str, tmp_path: Path):
    tensors = {n.replace("model.", "model.language_model.", 1): t for n, t in inside(name).items()}
    shard(tmp_path, tensors)
    (tmp_path / "config.json").write_text(json.dumps(wrapped(HEADS[name])))
    assert open_checkpoint(tmp_path).config.switches() == opened(name).config.switches()


@pytest.mark.parametrize("name", NAMES)
def test_the_targets_config_stands_in_for_one_that_is_missing(name: str):
    tensors, config = stored(name)
    target = class_config(HEADS[name].target_json)
    bare = {k: config[k] for k in ("speculators_model_type", "architectures") if k in config}
    found = open_state_dict(tensors, bare, target_config=target)
    mine, wanted = found.config.switches(), opened(name).config.switches()
    assert {n: mine[n] for n in mine if mine[n] != wanted[n]} == {}
    assert origin(found, "layer_config")[0] == origin(found, "num_heads")[0] == "target"
    with pytest.raises(
        CheckpointError, match=r"no config says of which model: put config\.json beside it, or give --target"
    ):
        open_state_dict(tensors, bare)


def test_defaults_say_whose_they_are():
    for name, carry, mask in (("DeepSeek-V3", "post", True), ("GLM-4.5", "pre", True), ("GLM-5", "post", True),
                              ("Qwen3-Next", "post", False), ("MiMo-7B", "post", True)):  # fmt: skip
        found = opened(name)
        for switch, value in (
            ("carry", carry),
            ("mask_first_embed", mask),
            ("draft_kv", "kept"),
            ("final_feature_normed", True),
        ):
            assert found.config.switches()[switch] == value
            source, detail = origin(found, switch)
            assert source == "default"
            assert "vLLM" in detail


@pytest.mark.parametrize(
    ("switch", "value"),
    [("carry", "pre"), ("mask_first_embed", True), ("draft_kv", "round"), ("draft_kv", "step"), ("embed_first", False),
     ("final_feature_normed", False), ("norm_offset", 0.0), ("rope.theta", 5.0), ("rope.partial", 0.25)],
)  # fmt: skip
@pytest.mark.parametrize("name", ["Qwen3-Next", "speculators Qwen3-Next"])
def test_a_users_switch_wins(name: str, switch: str, value: Any):
    found = opened(name, overrides={switch: value})
    assert found.config.switches()[switch] == value
    assert origin(found, switch) == ("user", f"--set {switch}")


@pytest.mark.parametrize("place", ["top", "text_config"])
@pytest.mark.parametrize("rope", ["rope_parameters", "rope_theta"])
@pytest.mark.parametrize("first", [None, True, False])
def test_flags_at_the_top_or_in_the_text_config(place: str, rope: str, first: bool | None):
    tensors, _ = stored("Qwen3.5")
    raw = dict(HEADS["Qwen3.5"].target_json)
    if rope == "rope_theta":
        own = raw.pop("rope_parameters")
        raw |= {"rope_theta": own["rope_theta"], "partial_rotary_factor": own["partial_rotary_factor"]}
    if first is not None:
        raw["mtp_hidden_states_first"] = first
    config = raw if place == "top" else {"model_type": "qwen3_5", "text_config": raw}
    found = open_state_dict(tensors, config)
    assert (found.config.rope.theta, found.config.rope.partial) == (1e7, 0.5)
    assert origin(found, "rope.theta") == (
        "config",
        "rope_theta" if rope == "rope_theta" else "rope_parameters.rope_theta",
    )
    assert found.config.embed_first is not bool(first)
    assert origin(found, "embed_first")[0] == ("default" if first is None else "config")


def test_yarn_is_read_in_either_spelling():
    plain = {k: v for k, v in HEADS["DeepSeek-V3"].target_json.items() if k != "rope_parameters"}
    scaling = dict(HEADS["DeepSeek-V3"].scaling or {})
    old = {"type": scaling.pop("rope_type"), **scaling}
    found = open_state_dict(stored("DeepSeek-V3")[0], plain | {"rope_scaling": old, "rope_theta": 10000})
    assert found.config.rope == opened("DeepSeek-V3").config.rope


def test_what_a_config_leaves_out_are_its_classs_values():
    raw = HEADS["GLM-4.5"].raw
    found = open_state_dict(stored("GLM-4.5")[0], raw)
    assert (found.config.rope.partial, origin(found, "rope.partial")) == (0.5, ("default", "config class"))
    assert origin(found, "rope.theta") == ("default", "config class")


@pytest.mark.parametrize("name", HEADS)
def test_every_tensor_that_is_missing_is_named(name: str):
    tensors, config = stored(name)
    optional = ("shared_head.head.weight", "embed_tokens.weight")
    for absent in tensors:
        # One expert stands for all; without fc's or a norm's name the layout itself is not recognised.
        if absent.endswith(optional) or (".experts." in absent and ".experts.1." not in absent):
            continue
        with pytest.raises(CheckpointError) as caught:
            open_state_dict({n: t for n, t in tensors.items() if n != absent}, config)
        assert (
            "missing" in str(caught.value)
            or "no drafter layout" in str(caught.value)
            or "MTP head" in str(caught.value)
        )
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", HEADS)
def test_every_tensor_of_another_shape_is_named(name: str):
    tensors, config = stored(name)
    for odd, tensor in tensors.items():
        if ".experts." in odd and ".experts.1." not in odd:
            continue
        for wrong in (torch.cat([tensor, tensor[:1]]), tensor[None]):
            with pytest.raises(CheckpointError) as caught:
                open_state_dict(tensors | {odd: wrong}, config)
            assert "\n" not in str(caught.value)
            assert any(
                word in str(caught.value)
                for word in (odd.rpartition(".")[0].rpartition(".")[2], "fc.weight", "experts")
            )


@pytest.mark.parametrize("name", HEADS)
def test_surplus_tensors_are_told(name: str):
    tensors, config = stored(name)
    place = next(n for n in tensors if "input_layernorm" in n).removesuffix("input_layernorm.weight")
    surplus = {f"{place}self_attn.indexer.wk.weight": torch.zeros(2, 2), f"{place}odd.weight": torch.zeros(1)}
    found = open_state_dict(tensors | surplus, config)
    assert set(found.unused) == set(surplus)
    extra = open_state_dict(tensors | {f"{place}self_attn.extra_norm.weight": torch.ones(2)}, config)
    assert extra.never_applied == ("layers.0.self_attn.extra_norm.weight",)


def test_stacked_experts_are_read_as_single_ones_are():
    for name in ("Qwen3.5 MoE", "DeepSeek-V3"):
        head = HEADS[name]
        family = next(family for family in FAMILIES if head.layout == family.NAME)
        whole = {family.stored_name(n): t for n, t in layouts.weights(head.config()).items()}
        config = stored(name)[1]
        apart = opened(name)
        found = open_state_dict(whole, config)
        assert found.weights.keys() == apart.weights.keys()
        assert all(torch.equal(found.weights[n], apart.weights[n]) for n in apart.weights)
        both = whole | stored(name)[0]
        with pytest.raises(CheckpointError, match="is stored, and so are single experts; keep one"):
            open_state_dict(both, config)


def test_experts_that_differ():
    tensors, config = stored("Qwen3-Next")
    name = "mtp.layers.0.mlp.experts.2.down_proj.weight"
    with pytest.raises(CheckpointError, match=r"experts\.2\.down_proj\.weight is bfloat16 .* experts must agree"):
        open_state_dict(tensors | {name: tensors[name].bfloat16()}, config)
    gone = {n: t for n, t in tensors.items() if ".experts.1." not in n}
    with pytest.raises(CheckpointError, match=r"experts\.1\.down_proj\.weight is missing, of 3 experts"):
        open_state_dict(gone, config)


@pytest.mark.parametrize(
    ("changes", "pattern"),
    [
        ({"model_type": "no_such_model"}, "model_type 'no_such_model' is none whose decoder layer transformers has"),
        ({"hidden_size": 48}, r"fc\.weight has 24 rows, but the config says hidden_size = 48"),
        ({"vocab_size": 49}, r"lm_head\.weight has 50 rows, but the config says vocab_size = 49"),
        ({"n_routed_experts": 8}, r"experts.* has shape \[4, 24, 24\], but the rest asks for \[8, 24, 24\]"),
        ({"num_attention_heads": "four"}, "transformers does not take this config of a deepseek_v3 layer"),
        ({"mtp_hidden_states_first": "yes"}, "mtp_hidden_states_first is 'yes', expected true or false"),
    ],
)
def test_configs_that_contradict_the_tensors(changes: dict[str, Any], pattern: str):
    with pytest.raises(CheckpointError, match=pattern) as caught:
        opened("DeepSeek-V3", changes)
    assert "\n" not in str(caught.value)


def test_a_head_does_not_fit_another_target():
    target = class_config(HEADS["DeepSeek-V3"].target_json | {"vocab_size": 99})
    with pytest.raises(TargetError, match=r"a vocabulary of 50 .* the target has 99"):
        opened("DeepSeek-V3", target_config=target)


def test_sparse_attention_is_told():
    assert any("index_topk (64) rows" in warning for warning in opened("DeepSeek-V3.2").warnings) is False
    raw = HEADS["DeepSeek-V3.2"].target_json
    found = open_state_dict(stored("DeepSeek-V3.2")[0], raw)
    assert any("indexer, which is not run" in w and "index_topk (64) rows" in w for w in found.warnings)


@pytest.mark.parametrize("name", ["DeepSeek-V3", "Qwen3-Next"])
def test_a_model_is_its_heads_target(name: str, tmp_path: Path):
    """A whole tiny model with its head in one folder, opened as a pair."""
    head = HEADS[name]
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(
        class_config(head.target_json | {"eos_token_id": None, "bos_token_id": None, "pad_token_id": None})
    )
    tensors = {n: t for n, t in stored(name)[0].items() if "shared_head.head" not in n and "embed_tokens" not in n}
    model.save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    names = {n.replace("model.layers.0.", "model.layers.4.", 1): t for n, t in tensors.items()}
    save_file(load_file(file) | names, file, metadata={"format": "pt"})
    tiny_tokenizer().save_pretrained(tmp_path)
    pair = load_pair(tmp_path)
    assert (pair.checkpoint.layout, pair.target.num_layers) == (head.layout, 4)
    assert pair.drafter.embed_tokens.weight.data_ptr() == pair.target.embedding_weight.data_ptr()
    assert pair.drafter.lm_head.weight.data_ptr() == pair.target.head_weight.data_ptr()
    assert pair.config.vocab_size == VOCAB


@pytest.mark.parametrize(
    ("name", "switch", "reads"),
    [
        ("GLM-4.5", "carry", (None, "post", "not looked into")),
        ("DeepSeek-V3", "mask_first_embed", (None, "no", "not looked into")),
        ("Qwen3-Next", "carry", (None, None, "not looked into")),
    ],
)
def test_engines_that_run_a_head_otherwise(name: str, switch: str, reads: tuple[str | None, ...], tmp_path: Path):
    tensors, config = stored(name)
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(config))
    found = {row.switch: row for row in inspect_checkpoint(tmp_path).engines}
    row = found[switch]
    assert (row.vllm, row.sglang, row.tensorrt_llm) == reads
    assert ("mask_first_embed" in found) is (name != "Qwen3-Next")
