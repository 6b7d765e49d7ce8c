"""inspect_checkpoint: what is stored, how it is read, how engines would read it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from transformers import LlamaConfig

from driftscope.checkpoints import inspect_checkpoint, inspection, open_checkpoint
from driftscope.checkpoints.engines import engine_readings
from driftscope.checkpoints.reading import files
from tests.checkpoints.layouts import CASES, IDS, PLAIN, VARIANTS, Layout, stored, weights

TENSORS, CONFIG = stored()


def put(folder: Path, tensors: dict[str, torch.Tensor] = TENSORS, config: dict[str, Any] = CONFIG) -> Path:
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_a_sound_checkpoint(tmp_path: Path):
    found = inspect_checkpoint(put(tmp_path))
    assert (found.layout, found.problems) == ("specforge", ())
    assert found.config == open_checkpoint(tmp_path).config
    assert found.sha256 == open_checkpoint(tmp_path).sha256
    assert found.by_status == {"used": list(open_checkpoint(tmp_path).names.values()), "never applied": [], "unused": [],
                               "missing": []}  # fmt: skip
    assert found.parameters == sum(tensor.numel() for tensor in TENSORS.values())
    assert found.nbytes == (tmp_path / "model.safetensors").stat().st_size
    assert found.position_limit == 512
    assert found.vocab is not None
    assert (found.vocab.reading, found.vocab.coverage, found.vocab.t2d_agrees) == ("offset", 0.25, True)
    assert {norm.name for norm in found.norms} == {name for name in TENSORS if "norm" in name}
    assert not any(norm.all_ones or norm.not_finite for norm in found.norms)
    made = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert made["switches"]["rope.theta"] == {"value": 5e5, "origin": "config", "detail": "rope_theta"}
    assert made["switches"]["carry"]["origin"] == "config"
    assert made["tensors"][0].keys() == {"name", "canonical", "dtype", "shape", "status"}


def test_used_missing_unused_and_never_applied(tmp_path: Path):
    tensors = {name: tensor for name, tensor in TENSORS.items() if name != "norm.weight"}
    tensors |= {"fc_norm.0.weight": torch.ones(16), "rotary_emb.inv_freq": torch.ones(4)}
    found = inspect_checkpoint(put(tmp_path, tensors)).by_status
    assert (found["missing"], found["unused"]) == (["norm.weight"], ["rotary_emb.inv_freq"])
    assert found["never applied"] == ["fc_norm.0.weight"]
    assert "norm.weight is missing: the layout needs it" in inspect_checkpoint(tmp_path).problems


def test_norms_of_ones_and_of_nan_are_told(tmp_path: Path):
    nan = torch.full((16,), float("nan"))
    ones = torch.ones(16, dtype=torch.bfloat16)
    found = inspect_checkpoint(put(tmp_path, TENSORS | {"norm.weight": nan, "midlayer.hidden_norm.weight": ones}))
    assert "midlayer.hidden_norm.weight is exactly ones: not trained, or not saved" in found.warnings
    assert "norm.weight holds 16 NaN or infinite values" in found.problems
    json.dumps(found.to_dict(), allow_nan=False)
    untrained = {name: torch.ones_like(tensor) if "norm" in name else tensor for name, tensor in TENSORS.items()}
    assert (
        "every norm is exactly ones: not trained, or not saved" in inspect_checkpoint(put(tmp_path, untrained)).warnings
    )


def test_contradictions_leave_the_tensors_to_look_at(tmp_path: Path):
    found = inspect_checkpoint(put(tmp_path, config=CONFIG | {"hidden_size": 99}))
    assert found.config is None
    assert len(found.tensors) == len(TENSORS)
    assert "config says hidden_size = 99" in found.problems[0]
    assert found.to_dict()["switches"] == {}
    bare = inspect_checkpoint(put(tmp_path, config={}))
    assert "--num-heads" in bare.problems[0]


def test_tensors_of_a_large_file_are_never_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    put(tmp_path)
    loaded: list[str] = []
    original = files.archives.safetensors_tensor

    def spy(path: Path, name: str) -> torch.Tensor:
        loaded.append(name)
        return original(path, name)

    monkeypatch.setattr(files.archives, "safetensors_tensor", spy)
    monkeypatch.setattr(inspection, "_HASHED_AT_MOST", 0)
    inspect_checkpoint(tmp_path)
    assert {name for name in loaded if TENSORS[name].ndim > 1} == set()
    assert {"d2t", "t2d", "norm.weight"} <= set(loaded)


def test_a_target_adds_the_fit_and_the_depth(tmp_path: Path):
    put(tmp_path)
    target = LlamaConfig(hidden_size=16, vocab_size=40, num_hidden_layers=10, num_attention_heads=2, head_dim=8)
    assert inspect_checkpoint(tmp_path, target_config=target).problems == ()
    target.vocab_size = 50
    found = inspect_checkpoint(tmp_path, target_config=target)
    assert any("a vocabulary of 40" in problem for problem in found.problems)


@pytest.mark.parametrize(("layout", "variant"), CASES, ids=IDS)
def test_every_layout_inspects_as_it_opens(layout: Layout, variant: str, tmp_path: Path):
    from driftscope.checkpoints import save_checkpoint

    config = layout.config(variant)
    save_checkpoint(tmp_path, config, weights(config), layout.name)
    found = inspect_checkpoint(tmp_path)
    assert (found.layout, found.problems, found.by_status["unused"]) == (layout.name, (), [])
    json.dumps(found.to_dict(), allow_nan=False)


def readings(raw: dict[str, Any], variant: str = "EAGLE-3", layers: int | None = None, **changes: Any):
    import dataclasses

    config = dataclasses.replace(PLAIN, **(VARIANTS[variant] | changes))
    found = engine_readings(config, raw, weights(config), layers)
    return {row.switch: (row.here, row.vllm, row.sglang, row.tensorrt_llm) for row in found}


NESTED = {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 3, 7]}, "draft_vocab_size": 10}
TOP = {"eagle_aux_hidden_state_layer_ids": [2, 4, 8], "draft_vocab_size": 10}


@pytest.mark.parametrize(
    ("raw", "variant", "switch", "expected"),
    [
        (NESTED, "EAGLE-3", "aux_boundaries",
         ("2, 4, 8", "1, 3, 7 (V1 runner) or 2, n//2, n-3 (V2 runner)", None, "2, n//2, n-3")),
        (TOP, "EAGLE-3", "aux_boundaries", ("2, 4, 8", None, "2, n//2, n-3", "2, n//2, n-3")),
        (TOP | {"norm_output": True}, "post-norm carry", "carry", None),
        (TOP, "post-norm carry", "carry", ("post", "pre", "pre", "pre")),
        (NESTED | {"eagle_config": {"return_hidden_post_norm": True}}, "post-norm carry", "carry",
         ("post", "pre", "pre", None)),
        (TOP | {"norm_before_residual": True}, "norm_before_residual", "residual", ("normed", None, "raw", "raw")),
        (TOP | {"norm_before_fc": True}, "norm_before_fc", "input_norm", ("yes", None, None, "no")),
        (TOP | {"eagle_config": {"norm_before_fc": True}}, "norm_before_fc", "input_norm", None),
        (TOP, "fc_norm", "fc_norm", ("yes", "no", "no", "no")),
        (TOP | {"use_aux_norm": True}, "fc_norm", "fc_norm", ("yes", "no", None, "no")),
        (TOP, "2 layers", "later_layer_norm", ("input_layernorm", None, "hidden_norm", "hidden_norm")),
        (TOP, "2 layers, hidden_norm", "later_layer_norm", ("hidden_norm", "input_layernorm", None, None)),
        (TOP, "biases", "fc_bias", ("yes", None, "no", None)),
        (TOP, "biases", "attention_bias", ("yes", "no", "no", None)),
        (TOP | {"attention_bias": True}, "EAGLE-3", "output_bias", ("no", "yes", None, None)),
        (TOP | {"bias": True}, "EAGLE-3", "output_bias", ("no", "yes", None, None)),
        (TOP, "EAGLE-3", "output_bias", None),
        (TOP, "own embedding", "embedding", ("own", None, "target", "target")),
        (TOP, "other target width", "embedding", None),
        ({"draft_vocab_size": None}, "EAGLE-3", "head", ("own", None, "target", None)),
        (TOP | {"tie_word_embeddings": True}, "EAGLE-3", "head", ("own", None, "embed_tokens", None)),
    ],
)  # fmt: skip
def test_how_engines_read_the_same_config(raw: dict[str, Any], variant: str, switch: str, expected: Any):
    assert readings(raw, variant).get(switch) == expected


def test_engines_agree_once_the_depth_shows_that_the_list_is_the_default():
    assert "aux_boundaries" in readings(TOP, aux_boundaries=(2, 4, 5), layers=None)
    same = readings(
        {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 3, 4]}}, aux_boundaries=(2, 4, 5), layers=8
    )
    assert same["aux_boundaries"] == ("2, 4, 5", "1, 3, 4 (V1 runner) or 2, 4, 5 (V2 runner)", None, None)
    silent = readings({"draft_vocab_size": 10}, aux_boundaries=(2, 4, 5), layers=8)
    assert "aux_boundaries" not in silent
    spec = {"speculators_model_type": "eagle3", "draft_vocab_size": 10}
    assert readings(spec)["residual"] == ("raw", "normed", None, None)
    assert readings(TOP, vocab_map="index")["vocab_map"] == ("index", "offset", "offset", "offset")
