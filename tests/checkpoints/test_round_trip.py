"""Saved in each layout, opened, equal: switches, tensors, names."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig

from driftscope.checkpoints import LAYOUTS, fit_to_target, open_checkpoint, save_checkpoint
from driftscope.checkpoints.families import mtp
from driftscope.checkpoints.families.decoder_layer import class_config
from driftscope.errors import CheckpointError
from tests.checkpoints.layouts import CASES, EAGLE1, IDS, LAYERS, PAGE, PLAIN, Layout, page_with, table, weights
from tests.checkpoints.layouts import LAYOUTS as TABLE
from tests.support import of_layout


def target(config, layers=LAYERS, **other):
    if config.layer_config is not None:
        return class_config(mtp.target_json(config))
    sizes = {"hidden_size": config.target_hidden_size, "vocab_size": config.vocab_size} | other
    return LlamaConfig(num_hidden_layers=layers, num_attention_heads=2, num_key_value_heads=1, head_dim=8, **sizes)


def switches(config):
    return {name: value for name, value in config.switches().items() if name != "aux_ids"}


@pytest.mark.supports("opened", of_layout)
@pytest.mark.parametrize(("layout", "variant"), CASES, ids=IDS)
def test_saved_and_opened_are_equal(layout: Layout, variant: str, tmp_path: Path):
    config = layout.config(variant)
    made = weights(config)
    opened = open_checkpoint(save_checkpoint(tmp_path, config, made, layout.name))
    assert opened.layout == layout.name
    assert switches(opened.config) == switches(config)
    assert {name: opened.config.origins[name].source for name in ("hidden_size", "rope.theta")} == {
        "hidden_size": "config",
        "rope.theta": "config",
    }
    assert opened.weights.keys() == made.keys()
    assert all(torch.equal(opened.weights[name], made[name]) for name in made)
    assert (opened.unused, opened.never_applied) == ((), ())
    fitted = fit_to_target(opened.config, target(config))
    assert switches(fitted) == switches(config)


def test_every_layout_that_can_be_written_is_in_the_table():
    assert {layout.name for layout in TABLE} == set(LAYOUTS)


def test_the_documented_table_is_the_tested_one():
    assert page_with(table()) == PAGE.read_text(encoding="utf-8"), "run: python -m tests.checkpoints.layouts"


def test_saving_refuses_what_the_layout_cannot_hold(tmp_path: Path):
    for layout, changes, word in (
        ("specforge", {"num_layers": 2}, "num_layers"),
        ("vllm", {"norm_offset": 1.0}, "norm_offset"),
        ("vllm", {"double_norm": True}, "double_norm"),
        ("angelslim", {"aux_boundaries": (0, 3, 5)}, "boundary 0"),
        ("eagle1", {}, "layer_form"),
    ):
        config = dataclasses.replace(PLAIN, **changes)
        with pytest.raises(CheckpointError, match=word):
            save_checkpoint(tmp_path / layout, config, weights(config), layout)
    with pytest.raises(CheckpointError, match=r"no layout 'onnx'; known: .*specforge"):
        save_checkpoint(tmp_path, PLAIN, weights(PLAIN), "onnx")
    incomplete = weights(PLAIN)
    del incomplete["fc.weight"]
    with pytest.raises(CheckpointError, match=r"fc\.weight is missing"):
        save_checkpoint(tmp_path, PLAIN, incomplete, "specforge")
    assert not list(tmp_path.rglob("*.safetensors"))


def test_extra_config_wins_and_nothing_partial_is_left(tmp_path: Path):
    save_checkpoint(tmp_path, PLAIN, weights(PLAIN), "specforge", {"rope_theta": 7.0, "note": "x"})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "model.safetensors"]
    assert json.loads((tmp_path / "config.json").read_text())["note"] == "x"
    assert open_checkpoint(tmp_path).config.rope.theta == 7.0


def test_bfloat16_stays_bfloat16_and_the_hash_follows_the_bytes(tmp_path: Path):
    half = {n: t.bfloat16() if t.is_floating_point() else t for n, t in weights(EAGLE1).items()}
    first = open_checkpoint(save_checkpoint(tmp_path / "a", EAGLE1, half, "eagle1"))
    again = open_checkpoint(save_checkpoint(tmp_path / "b", EAGLE1, half, "eagle1"))
    other = open_checkpoint(save_checkpoint(tmp_path / "c", EAGLE1, weights(EAGLE1, seed=1), "eagle1"))
    assert {t.dtype for t in first.weights.values()} == {torch.bfloat16}
    assert json.loads((tmp_path / "a" / "config.json").read_text())["torch_dtype"] == "bfloat16"
    assert first.sha256 == again.sha256 != other.sha256
    assert len(first.sha256) == 64
