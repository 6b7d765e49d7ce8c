"""DFlash and P-EAGLE checkpoints: every switch in every place, what is missing asked for by its flag, every fault by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import LlamaConfig

from driftscope.checkpoints import inspect_checkpoint, open_state_dict
from driftscope.errors import CheckpointError, TargetError
from tests.checkpoints import layouts


def zlab() -> tuple[dict[str, Tensor], dict[str, Any]]:
    """(tensors, config.json) as z-lab publishes them."""
    layout = next(item for item in layouts.LAYOUTS if item.name == "dflash")
    return layouts.stored(layout.config("DFlash"), "dflash")


def speculators() -> tuple[dict[str, Tensor], dict[str, Any]]:
    return layouts.stored(layouts.DFLASH, "speculators-dflash")


def peagle(layout: str = "speculators") -> tuple[dict[str, Tensor], dict[str, Any]]:
    item = next(item for item in layouts.LAYOUTS if item.name == layout)
    return layouts.stored(item.config("P-EAGLE"), layout)


def origin(checkpoint: Any, switch: str) -> tuple[str, str]:
    found = checkpoint.config.origins[switch]
    return found.source, found.detail


def moved(config: dict[str, Any], key: str) -> dict[str, Any]:
    """The config with a key of dflash_config at the top instead."""
    nested = dict(config["dflash_config"])
    return {**config, key: nested.pop(key), "dflash_config": nested}


def without(config: dict[str, Any], *keys: str) -> dict[str, Any]:
    """The config without some keys, nested ones too."""
    kept = {key: value for key, value in config.items() if key not in keys}
    if "dflash_config" in kept:
        kept["dflash_config"] = {key: value for key, value in kept["dflash_config"].items() if key not in keys}
    return kept


@pytest.mark.parametrize("place", ["dflash_config", "top"])
def test_layers_and_mask_token_are_read_nested_and_at_the_top(place: str):
    tensors, config = zlab()
    if place == "top":
        config = moved(moved(config, "target_layer_ids"), "mask_token_id")
    opened = open_state_dict(tensors, config)
    prefix = "dflash_config." if place == "dflash_config" else ""
    assert (opened.layout, opened.config.layer_form, opened.config.carry) == ("dflash", "dflash", "none")
    # Ids of layers whose outputs are read are one less than the boundaries.
    assert opened.config.aux_boundaries == (2, 4, 8)
    assert origin(opened, "aux_boundaries") == ("config", f"{prefix}target_layer_ids = [1, 3, 7]: layer outputs, so +1")
    assert (opened.config.mask_token_id, origin(opened, "mask_token_id")) == (3, ("config", f"{prefix}mask_token_id"))
    assert (opened.config.head, opened.config.embedding, opened.unused) == ("target", "target", ())


def test_the_block_size_is_read_in_both_places():
    tensors, config = zlab()
    nested = without(config, "block_size")
    nested["dflash_config"]["block_size"] = 9
    assert open_state_dict(tensors, nested).config.block_size == 9
    assert open_state_dict(tensors, config).config.block_size == 6


def test_speculators_writes_boundaries_and_its_own_head():
    tensors, config = speculators()
    opened = open_state_dict(tensors, config)
    assert (opened.layout, opened.config.aux_boundaries) == ("speculators-dflash", (2, 4, 8))
    assert origin(opened, "aux_boundaries")[1].endswith("boundaries as they stand")
    assert (opened.config.head, opened.config.vocab_map, opened.config.draft_vocab_size) == ("own", "offset", 10)


@pytest.mark.parametrize(
    ("make", "keys", "asked", "overrides"),
    [
        (zlab, ("target_layer_ids",), r"target_layer_ids.*give --aux, 3 boundaries", {"aux_boundaries": [2, 4, 8]}),
        (speculators, ("aux_hidden_state_layer_ids",), "give --aux, 3 boundaries", {"aux_boundaries": [2, 4, 8]}),
        (zlab, ("mask_token_id",), r"give --set mask_token_id=N", {"mask_token_id": 3}),
        (speculators, ("mask_token_id",), r"give --set mask_token_id=N", {"mask_token_id": 3}),
        (zlab, ("block_size",), r"give --set block_size=N", {"block_size": 6}),
        (peagle, ("mask_token_id",), r"give --set mask_token_id=N", {"mask_token_id": 3}),
    ],
)
def test_what_is_not_recorded_is_asked_for_and_never_guessed(
    make: Any, keys: Any, asked: str, overrides: dict[str, Any]
):
    tensors, config = make()
    silent = without(config, *keys)
    with pytest.raises(CheckpointError, match=asked) as caught:
        open_state_dict(tensors, silent)
    assert "\n" not in str(caught.value)
    opened = open_state_dict(tensors, silent, overrides=overrides)
    full = open_state_dict(tensors, config)
    assert {n: v for n, v in opened.config.switches().items() if n != "aux_ids"} == {
        n: v for n, v in full.config.switches().items() if n != "aux_ids"
    }
    assert {origin(opened, name)[0] for name in overrides} == {"user"}


@pytest.mark.parametrize(
    ("make", "changes", "switch", "value"),
    [
        (zlab, {"is_causal": True}, "block_causal", "all"),
        (zlab, {"is_causal": False}, "block_causal", "none"),
        (speculators, {"sliding_window_non_causal": True}, "block_causal", "none"),
        (speculators, {"sample_from_anchor": True}, "sample_from_anchor", True),
        (zlab, {"input_embedding_scale": 2.5}, "embed_scale", 2.5),
        (zlab, {"output_multiplier": 0.5}, "logit_scale", 0.5),
        (
            zlab,
            {"sliding_window": 64, "layer_types": ["sliding_attention", "full_attention"]},
            "sliding_window",
            (64, None),
        ),
    ],
)
def test_switches_of_the_config(make: Any, changes: dict[str, Any], switch: str, value: Any):
    tensors, config = make()
    opened = open_state_dict(tensors, {**config, **changes})
    assert getattr(opened.config, switch) == value
    assert opened.config.origins[switch].source == "config"


def test_a_missing_and_a_surplus_tensor_are_named():
    tensors, config = zlab()
    for gone, what in (
        ("norm.weight", "norm.weight is missing"),
        ("layers.1.mlp.up_proj.weight", "up_proj.weight is miss"),
    ):
        with pytest.raises(CheckpointError, match=what):
            open_state_dict({name: t for name, t in tensors.items() if name != gone}, config)
    opened = open_state_dict(tensors | {"layers.0.extra.weight": torch.zeros(2)}, config)
    assert opened.unused == ("layers.0.extra.weight",)


@pytest.mark.parametrize(
    ("name", "shape", "pattern"),
    [
        ("hidden_norm.weight", (9,), r"hidden_norm\.weight has shape \[9\].*\[16\]"),
        ("layers.1.self_attn.q_norm.weight", (4,), r"layers\.1\.self_attn\.q_norm\.weight has shape \[4\]"),
        ("fc.weight", (16, 40), "fc.weight reads 40 features, no multiple of the target's width 16"),
        ("layers.0.self_attn.kv_a_proj_with_mqa.weight", (9, 16), "a block drafter with latent attention"),
        (
            "layers.0.self_attn.q_proj.weight",
            (32, 32),
            "q_proj of layer 0 reads 32 features, expected the drafter's width 16",
        ),
    ],
)
def test_wrong_shapes_are_named(name: str, shape: tuple[int, ...], pattern: str):
    tensors, config = zlab()
    with pytest.raises(CheckpointError, match=pattern):
        open_state_dict({**tensors, name: torch.zeros(shape)}, config)


@pytest.mark.parametrize(
    ("changes", "overrides", "pattern"),
    [
        ({"dflash_config": {"mask_token_id": 99, "target_layer_ids": [1, 3, 7]}}, {}, "mask_token_id is 99.*0 to 39"),
        ({"dflash_config": {"mask_token_id": "x", "target_layer_ids": [1, 3, 7]}}, {}, "mask_token_id is 'x'"),
        ({"block_size": 1}, {}, "block_size is 1: a block drafts from 2 rows on"),
        ({"final_logit_softcapping": 30.0}, {}, "final_logit_softcapping is 30.0: a cap on the logits"),
        ({}, {"carry": "post"}, "carries nothing: carry cannot be post"),
        ({}, {"block_causal": "some"}, "expected one of none, sliding, all"),
    ],
)
def test_what_contradicts_itself_or_cannot_be_run(changes: dict[str, Any], overrides: dict[str, Any], pattern: str):
    tensors, config = zlab()
    with pytest.raises(CheckpointError, match=pattern):
        open_state_dict(tensors, {**config, **changes}, overrides=overrides)


def test_the_target_must_have_the_layers_that_it_reads():
    tensors, config = zlab()
    target = LlamaConfig(num_hidden_layers=6, hidden_size=16, vocab_size=40, num_attention_heads=2)
    with pytest.raises(TargetError, match=r"boundary 8 is not in 0\.\.6"):
        open_state_dict(tensors, config, target_config=target)


@pytest.mark.parametrize("key", ["mask_token_id", "pard_token", "ptd_token_id"])
def test_p_eagle_as_engines_and_trainers_write_it(key: str):
    tensors, config = peagle("vllm")
    assert config["architectures"] == ["PeagleLlamaForCausalLM"]
    named = without(config, "mask_token_id") | {key: 7, "parallel_drafting": True}
    opened = open_state_dict(tensors, named)
    assert (opened.layout, opened.config.carry, opened.config.layer_form) == ("vllm", "none", "eagle3")
    assert (opened.config.mask_token_id, origin(opened, "mask_token_id")) == (7, ("config", key))
    assert origin(opened, "carry") == ("weights", "mask_hidden")


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_the_mask_features_of_p_eagle_may_have_any_dimensions_of_one(dims: int):
    tensors, config = peagle()
    flat = tensors["mask_hidden"].reshape(*[1] * (dims - 1), -1)
    opened = open_state_dict({**tensors, "mask_hidden": flat}, config)
    assert torch.equal(opened.weights["mask_hidden"].flatten(), flat.flatten())


def test_p_eagle_without_its_mask_features_is_incomplete_and_can_be_chained():
    tensors, config = peagle()
    with pytest.raises(CheckpointError, match="mask_hidden is missing"):
        open_state_dict({name: t for name, t in tensors.items() if name != "mask_hidden"}, config)
    with pytest.raises(CheckpointError, match=r"mask_hidden has shape \[1, 1, 5\]"):
        open_state_dict({**tensors, "mask_hidden": torch.zeros(1, 1, 5)}, config)
    chained = open_state_dict(tensors, config, overrides={"carry": "pre"})
    assert chained.never_applied == ("mask_hidden",)


def test_inspection_of_a_block_drafter_says_what_was_read_where(tmp_path: Path):
    tensors, config = zlab()
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(config))
    report = inspect_checkpoint(tmp_path)
    assert (report.problems, report.engines) == ((), ())
    told = report.to_dict()["switches"]
    assert told["block_size"] == {"value": 6, "origin": "config", "detail": "block_size"}
    assert {norm.name for norm in report.norms} >= {"hidden_norm.weight", "layers.1.self_attn.k_norm.weight"}
    silent = without(config, "mask_token_id", "block_size", "target_layer_ids")
    (tmp_path / "config.json").write_text(json.dumps(silent))
    problems = " ".join(inspect_checkpoint(tmp_path).problems)
    for flag in ("--aux", "--set mask_token_id", "--set block_size"):
        assert flag in problems
