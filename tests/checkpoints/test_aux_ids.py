"""Layer ids to boundaries, in every convention."""

from __future__ import annotations

from typing import Any

import pytest
from transformers import LlamaConfig

from driftscope.checkpoints import fit_to_target, open_state_dict, target_warnings
from driftscope.checkpoints.reading.aux_ids import AuxIds, default_boundaries, to_boundaries
from driftscope.errors import CheckpointError, TargetError
from tests.checkpoints.layouts import stored

IDS = "eagle_aux_hidden_state_layer_ids"
TENSORS, FULL = stored(layout="vllm")
CONFIG = {key: value for key, value in FULL.items() if key != IDS}


def target(layers: int, **other: Any) -> LlamaConfig:
    sizes = {"hidden_size": 16, "vocab_size": 40} | other
    return LlamaConfig(num_hidden_layers=layers, num_attention_heads=2, head_dim=8, **sizes)


@pytest.mark.parametrize(
    ("ids", "convention", "layers", "expected"),
    [
        ((2, 30, 58), "boundary", 61, (2, 30, 58)),
        ((1, 29, 57), "nested", 61, (2, 30, 58)),  # Kimi-K2.5 as trained
        ((2, 30, 58), "nested", 61, (2, 30, 58)),  # the same, exported for vLLM
        ((24, 30, 36), "nested", 36, (24, 30, 36)),  # gpt-oss-120b: 36 is no layer's output
        ((1, 11, 21), "nested", 24, (2, 12, 22)),
        ((1, 21, 40), "nested", 43, (2, 22, 41)),
        ((57, 1, 29), "layer output", 61, (2, 30, 58)),
        ((1, 29, 57), "nested", None, (2, 30, 58)),
    ],
)
def test_conventions(ids: tuple[int, ...], convention: Any, layers: int | None, expected: tuple[int, ...]):
    boundaries, _ = to_boundaries(AuxIds(ids, "key", convention), layers)
    assert boundaries == expected


@pytest.mark.parametrize("layers", [8, 24, 30, 32, 36, 61, 80])
def test_the_default_is_one_whichever_way_it_is_written(layers: int):
    outputs = (1, layers // 2 - 1, layers - 4)
    assert to_boundaries(AuxIds(outputs, "key", "nested"), layers)[0] == default_boundaries(layers)
    assert to_boundaries(AuxIds(default_boundaries(layers), "key", "nested"), layers)[0] == default_boundaries(layers)


@pytest.mark.parametrize(
    ("config", "boundaries", "source"),
    [
        ({IDS: [1, 5, 9]}, (1, 5, 9), "config"),
        ({"eagle_config": {IDS: [1, 5, 9]}}, (2, 6, 10), "config"),
        ({"eagle_config": {IDS: [1, 5, 10]}}, (1, 5, 10), "config"),
        ({"eagle_config": {IDS: [2, 5, 7]}}, (2, 5, 7), "config"),
        ({"aux_hidden_states_layer_ids": [1, 5, 9]}, (2, 6, 10), "config"),
        ({"target_layer_ids": [1, 5, 9]}, (2, 6, 10), "config"),
        ({"eagle3_layers_to_capture": [1, 5, 9]}, (2, 6, 10), "config"),
        ({IDS: [3, 4, 5], "eagle_config": {IDS: [1, 5, 9]}}, (3, 4, 5), "config"),
        ({}, (2, 5, 7), "default"),
        ({IDS: None, "eagle_config": {IDS: None}}, (2, 5, 7), "default"),
    ],
)
def test_every_key_by_its_own_convention_and_precedence(config: dict[str, Any], boundaries: Any, source: str):
    with_target = open_state_dict(TENSORS, CONFIG | config, target_config=target(10)).config
    later = fit_to_target(open_state_dict(TENSORS, CONFIG | config).config, target(10))
    for found in (with_target, later):
        assert found.aux_boundaries == boundaries
        assert found.origins["aux_boundaries"].source == source
    assert fit_to_target(later, target(10)).aux_boundaries == boundaries


def test_a_flag_beats_every_list():
    config = CONFIG | {"eagle_config": {IDS: [1, 5, 9]}}
    found = open_state_dict(TENSORS, config, overrides={"aux_boundaries": [0, 3, 10]}, target_config=target(10)).config
    assert found.aux_boundaries == (0, 3, 10)
    assert found.origins["aux_boundaries"].source == "user"
    with pytest.raises(CheckpointError, match=r"fc reads 3 aux features, but 2 are listed \(--set aux_boundaries\)"):
        open_state_dict(TENSORS, config, overrides={"aux_boundaries": [0, 3]})


def test_unsorted_lists_are_sorted_as_engines_do_and_told():
    opened = open_state_dict(TENSORS, CONFIG | {IDS: [8, 2, 4]})
    assert opened.config.aux_boundaries == (2, 4, 8)
    assert any("not ascending" in warning for warning in opened.warnings)


@pytest.mark.parametrize("layers", [2, 3, 4, 5])
def test_targets_too_shallow_for_the_default_ask_for_the_flag(layers: int):
    with pytest.raises(TargetError, match=r"2, n//2, n-3 are .* give --aux"):
        open_state_dict(TENSORS, CONFIG, target_config=target(layers))
    chosen = {"aux_boundaries": [0, 1, 2]}
    assert open_state_dict(TENSORS, CONFIG, overrides=chosen, target_config=target(layers)).config.aux_boundaries


def test_another_number_of_features_without_a_list_asks_for_the_flag():
    tensors = {name: tensor for name, tensor in TENSORS.items() if name != "fc.weight"}
    tensors["fc.weight"] = TENSORS["fc.weight"][:, :32]
    with pytest.raises(CheckpointError, match="fc reads 2 aux features and the config does not say which: give --aux"):
        open_state_dict(tensors, CONFIG)
    opened = open_state_dict(tensors, CONFIG, overrides={"aux_boundaries": [3, 7]})
    assert (opened.config.num_aux, opened.config.aux_boundaries) == (2, (3, 7))


@pytest.mark.parametrize(
    ("layers", "other", "pattern"),
    [
        (10, {"hidden_size": 24}, "expects features of width 16 .*the target has 24"),
        (10, {"vocab_size": 41}, r"expects a vocabulary of 40 \(config: vocab_size\), the target has 41"),
        (6, {}, "boundary 8 is not in 0..6: the target has 6 layers"),
    ],
)
def test_another_targets_sizes(layers: int, other: dict[str, Any], pattern: str):
    opened = open_state_dict(TENSORS, FULL)
    with pytest.raises(TargetError, match=pattern) as caught:
        fit_to_target(opened.config, target(layers, **other))
    assert "\n" not in str(caught.value)


def test_another_recorded_name_only_warns():
    opened = open_state_dict(TENSORS, FULL | {"target_model_name_or_path": "meta/Llama-3.1-8B"})
    (warning,) = target_warnings(opened, "Qwen/Qwen3-8B")
    assert warning == "the checkpoint records the target meta/Llama-3.1-8B, and Qwen/Qwen3-8B was given"
    assert target_warnings(opened, "meta/Llama-3.1-8B") == ()
    assert target_warnings(opened, "/models/llama-3.1-8b/") == ()
    assert target_warnings(opened, None) == ()
    assert target_warnings(open_state_dict(TENSORS, FULL), "any/model") == ()


def test_ids_are_checked_against_the_depth_that_the_config_records() -> None:
    beyond = {**CONFIG, "eagle_aux_hidden_state_layer_ids": [2, 4, 30], "num_target_layers": 10}
    with pytest.raises(
        CheckpointError, match=r"boundary 30 \(.*\) is not in a target of 10 layers \(num_target_layers\)"
    ):
        open_state_dict(TENSORS, beyond)
    assert open_state_dict(
        TENSORS, {**beyond, "eagle_aux_hidden_state_layer_ids": [2, 4, 8]}
    ).config.aux_boundaries == (2, 4, 8)


def test_the_last_state_is_no_source_for_a_head_with_fc() -> None:
    with pytest.raises(
        CheckpointError, match=r"--set feature_source=final: fc\.weight reads 48 features for a width of 16"
    ):
        open_state_dict(TENSORS, CONFIG, overrides={"feature_source": "final"})
