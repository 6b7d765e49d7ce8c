"""What the config does not say: inferred, taken from a published default, or asked for; each visibly."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import LlamaConfig, Qwen3Config

from driftscope.checkpoints import open_state_dict, parse_switch
from driftscope.checkpoints.families.speculators import CLASS_DEFAULTS, CLASS_THETA
from driftscope.errors import CheckpointError
from tests.checkpoints.layouts import PLAIN, stored

TENSORS, CONFIG = stored()


def opened(config: dict[str, Any] | None = None, tensors: dict[str, Tensor] | None = None, **kwargs: Any):
    return open_state_dict(tensors or TENSORS, CONFIG if config is None else config, **kwargs)


def without(*keys: str) -> dict[str, Any]:
    return {key: value for key, value in CONFIG.items() if key not in keys}


def origin(checkpoint, switch: str) -> tuple[str, str]:
    found = checkpoint.config.origins[switch]
    return found.source, found.detail


def told(checkpoint, *words: str) -> bool:
    return any(all(word in warning for word in words) for warning in checkpoint.warnings)


def test_every_switch_has_an_origin():
    checkpoint = opened()
    assert checkpoint.config.origins.keys() == checkpoint.config.switches().keys()


def test_sizes_follow_from_the_weights_where_the_config_is_silent():
    checkpoint = opened({"num_attention_heads": 4})
    assert checkpoint.config.hidden_size == 16
    assert origin(checkpoint, "hidden_size") == ("weights", "rows of layers.0.self_attn.o_proj.weight")
    assert origin(checkpoint, "vocab_size") == ("weights", "t2d")
    assert (checkpoint.config.head_dim, checkpoint.config.num_kv_heads) == (8, 2)
    assert origin(checkpoint, "rms_norm_eps")[0] == "default"
    assert checkpoint.layout == "safeailab"


def test_head_count_is_asked_for_by_flag_where_nothing_tells():
    with pytest.raises(CheckpointError, match=r"q_proj has 32 rows and k_proj 16.*give --num-heads"):
        opened({})
    assert opened({}, overrides={"num_heads": 4}).config.head_dim == 8
    assert opened({}, overrides={"head_dim": 4}).config.num_heads == 8
    with pytest.raises(CheckpointError, match=r"--set num_heads = 5 does not divide"):
        opened({}, overrides={"num_heads": 5})
    with pytest.raises(CheckpointError, match="query heads cannot share"):
        opened({}, overrides={"num_heads": 4}, tensors=TENSORS | {
            f"midlayer.self_attn.{p}_proj.weight": torch.ones(24, 32) for p in "kv"
        })  # fmt: skip


def test_head_size_from_inv_freq_or_from_the_target():
    frequencies = {"midlayer.self_attn.rotary_emb.inv_freq": torch.ones(4)}
    checkpoint = opened({}, TENSORS | frequencies)
    assert (checkpoint.config.head_dim, origin(checkpoint, "head_dim")[0]) == (8, "weights")
    assert checkpoint.unused == tuple(frequencies)
    target = LlamaConfig(
        hidden_size=16, vocab_size=40, num_hidden_layers=10, num_attention_heads=8, num_key_value_heads=2, head_dim=4
    )
    checkpoint = opened({}, target_config=target)
    assert (checkpoint.config.head_dim, origin(checkpoint, "head_dim")[0]) == (4, "target")
    assert told(checkpoint, "head size is not recorded", "target's 4")


def test_carry_rope_and_layers_are_assumed_loudly_because_weights_do_not_show_them():
    checkpoint = opened({"num_attention_heads": 4})
    assert (checkpoint.config.carry, origin(checkpoint, "carry")[0]) == ("pre", "default")
    assert (checkpoint.config.rope.theta, origin(checkpoint, "rope.theta")[0]) == (10000.0, "default")
    assert told(checkpoint, "carry", "--carry post")
    assert told(checkpoint, "rope theta", "--rope-theta")
    assert told(checkpoint, "aux layers", "--aux")
    said = {"carry": "post", "rope.theta": 5e5, "aux_boundaries": (1, 2, 3)}
    quiet = opened({"num_attention_heads": 4}, overrides=said)
    assert quiet.warnings == ()
    assert origin(quiet, "carry") == ("user", "--set carry")


@pytest.mark.parametrize(
    ("config", "theta", "scaling"),
    [
        ({"rope_theta": 7.0}, 7.0, None),
        ({"rope_parameters": {"rope_theta": 7.0, "rope_type": "default"}}, 7.0, None),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}, "rope_theta": 7.0}, 7.0,
         {"rope_type": "linear", "factor": 2.0}),
        ({"rope_parameters": {"full_attention": {"rope_theta": 7.0, "rope_type": "yarn", "factor": 4.0},
                              "sliding_attention": {"rope_theta": 9.0, "rope_type": "default"}}}, 7.0,
         {"rope_type": "yarn", "factor": 4.0}),
        ({"rope_theta": 7.0, "rope_scaling": {"type": "mrope", "mrope_section": [1, 2, 1]}}, 7.0, None),
        ({"rope_theta": 7.0, "rope_scaling": {}}, 7.0, None),
    ],
)  # fmt: skip
def test_rope_from_every_place_where_a_config_holds_it(config: dict[str, Any], theta: float, scaling: Any):
    checkpoint = opened(without("rope_theta", "rope_scaling") | config)
    assert checkpoint.config.rope.theta == theta
    assert checkpoint.config.rope.scaling == scaling
    assert origin(checkpoint, "rope.theta")[0] == "config"


def test_two_rope_thetas_that_disagree_are_told():
    checkpoint = opened(without("rope_scaling") | {"rope_parameters": {"rope_theta": 9.0, "rope_type": "default"}})
    assert checkpoint.config.rope.theta == 5e5
    assert told(checkpoint, "500000", "9 in its rope block")


@pytest.mark.parametrize(
    ("config", "carry"),
    [
        ({"norm_output": True}, "post"),
        ({"norm_output": False}, "pre"),
        ({"eagle_config": {"return_hidden_post_norm": True}}, "post"),
        ({"eagle_config": {"norm_output": True}}, "post"),
    ],
)
def test_every_spelling_of_the_carry(config: dict[str, Any], carry: str):
    checkpoint = opened(without("norm_output", "eagle_config") | config)
    assert checkpoint.config.carry == carry
    assert origin(checkpoint, "carry")[0] == "config"


def test_norm_output_of_specforge_is_ambiguous_unless_a_second_key_agrees():
    assert told(opened(without("eagle_config") | {"norm_output": True}), "PR 879", "--carry pre")
    assert told(opened(without("eagle_config") | {"norm_output": False}), "PR 879", "--set final_norm=false")
    assert not told(opened(), "PR 879")
    assert not told(opened(without("eagle_config"), overrides={"carry": "pre"}), "PR 879")


@pytest.mark.parametrize(
    ("config", "names", "switch"),
    [
        ({"fc_norm": True}, [f"fc_norm.{i}.weight" for i in range(3)], "fc_norm"),
        ({"use_aux_norm": True}, [f"aux_norm_{part}.weight" for part in ("low", "mid", "high")], "fc_norm"),
        ({}, [f"fc_norm.{i}.weight" for i in range(3)], "fc_norm"),
        ({"norm_before_fc": True}, ["input_norm.weight"], "input_norm"),
        ({"eagle_config": {"norm_before_fc": True}}, ["input_norm.weight"], "input_norm"),
        ({}, ["input_norm.weight"], "input_norm"),
    ],
)
def test_every_spelling_of_the_norms_before_fc(config: dict[str, Any], names: list[str], switch: str):
    width = 48 if switch == "input_norm" else 16
    tensors = TENSORS | {name: torch.ones(width) for name in names}
    checkpoint = opened(without("fc_norm", "norm_before_fc", "eagle_config") | config, tensors)
    assert getattr(checkpoint.config, switch)
    assert origin(checkpoint, switch)[0] == ("config" if config else "weights")
    assert not checkpoint.unused


def test_a_norm_that_is_stored_but_switched_off_is_told():
    tensors = TENSORS | {f"fc_norm.{i}.weight": torch.ones(16) for i in range(3)}
    checkpoint = opened(CONFIG, tensors)
    assert checkpoint.config.fc_norm is False
    assert checkpoint.never_applied == tuple(f"fc_norm.{i}.weight" for i in range(3))
    assert told(checkpoint, "fc_norm.0.weight is stored, but fc_norm is false", "--set fc_norm=true")
    assert opened(CONFIG, tensors, overrides={"fc_norm": True}).never_applied == ()


def test_the_layers_that_a_fixed_layout_never_counts_are_told():
    checkpoint = opened(CONFIG | {"num_hidden_layers": 40})
    assert checkpoint.config.num_layers == 1
    assert told(checkpoint, "num_hidden_layers = 40, but one layer is stored")


def test_angelslims_theta_and_modelopts_yarn_are_told():
    tensors, config = stored(layout="angelslim")
    assert told(opened(config, tensors), "500000", "AngelSlim", "--rope-theta 10000")
    assert not told(opened(config | {"rope_theta": 10000.0}, tensors), "AngelSlim")
    tensors, config = stored(layout="modelopt")
    yarn = {"rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 128}
    assert told(opened(config | {"rope_scaling": yarn}, tensors), "yarn with factor 32.0", "at export")


def test_speculators_nested_config_takes_the_defaults_of_its_class():
    for kind, defaults in CLASS_DEFAULTS.items():
        real = {"llama": LlamaConfig, "qwen3": Qwen3Config}[kind]()
        assert {key: getattr(real, key) for key in defaults} == defaults
        assert real.rope_parameters["rope_theta"] == CLASS_THETA
        assert (real.hidden_act, real.rms_norm_eps) == ("silu", 1e-6)
    tensors, config = stored(layout="speculators")
    config = config | {"transformer_layer_config": {"model_type": "qwen3", "hidden_size": 16, "vocab_size": 40}}
    wide = {  # qwen3's default head size is 128
        "layers.0.self_attn.q_proj.weight": torch.ones(256, 32),
        "layers.0.self_attn.k_proj.weight": torch.ones(128, 32),
        "layers.0.self_attn.v_proj.weight": torch.ones(128, 32),
        "layers.0.self_attn.o_proj.weight": torch.ones(16, 256),
    }
    checkpoint = opened(config, tensors | wide)
    assert (checkpoint.config.head_dim, checkpoint.config.num_heads) == (128, 2)
    assert origin(checkpoint, "head_dim")[0] == origin(checkpoint, "rope.theta")[0] == "default"
    assert checkpoint.config.rope.max_position == 32768
    assert not told(checkpoint, "rope theta")


def test_speculators_residual_is_told_where_the_key_is_absent():
    tensors, config = stored(layout="speculators")
    del config["norm_before_residual"]
    checkpoint = opened(config, tensors)
    assert checkpoint.config.residual == "raw"
    assert told(checkpoint, "norm_before_residual", "vLLM assumes true", "--set residual=normed")


def test_a_tied_config_over_a_smaller_head_is_told():
    assert told(opened(CONFIG | {"tie_word_embeddings": True}), "tie_word_embeddings", "wrong head")


def test_windows_by_layer_type_and_by_qwens_switch():
    assert opened(CONFIG | {"sliding_window": 64}).config.sliding_window is None
    assert opened(CONFIG | {"sliding_window": 64, "use_sliding_window": True}).config.sliding_window == (64,)
    assert opened(CONFIG | {"sliding_window": 64, "model_type": "mistral"}).config.sliding_window == (64,)
    full = {"sliding_window": 64, "layer_types": ["full_attention"]}
    assert opened(CONFIG | full).config.sliding_window is None


def test_eagle1_shapes_and_its_old_vllm_export():
    tensors, config = stored(
        PLAIN.replace(
            "config", layer_form="eagle1", feature_source="final", num_aux=1, aux_boundaries=None, state_norm=False,
            draft_vocab_size=40, vocab_map="none", head="target", embedding="own", final_norm=False, fc_bias=True,
        ),
        "eagle1",
    )  # fmt: skip
    wrapped = {"model_type": "eagle", "eagle_fc_bias": True, "model": config, "truncated_vocab_size": 40}
    checkpoint = opened(wrapped, {f"model.{name}": tensor for name, tensor in tensors.items()})
    assert checkpoint.layout == "eagle1"
    assert checkpoint.config.fc_bias
    assert checkpoint.config.rope.theta == 5e5
    assert checkpoint.config.carry == "pre"
    assert not told(checkpoint, "carry")
    with pytest.raises(CheckpointError, match=r"fc\.bias is missing, but bias is true"):
        opened(config, {name: tensor for name, tensor in tensors.items() if name != "fc.bias"})
    extra = opened(
        wrapped, tensors | {"norm.weight": torch.ones(16), "layers.0.input_layernorm.weight": torch.ones(16)}
    )
    assert extra.never_applied == ("norm.weight", "layers.0.input_layernorm.weight")
    assert told(extra, "norm.weight is stored, but EAGLE-1 has no such norm")


def test_other_names_of_a_target_are_recorded():
    assert opened(CONFIG | {"target_model_name_or_path": "a/b"}).target_name == "a/b"
    nested = {"speculators_config": {"verifier": {"name_or_path": "c/d"}}}
    assert opened(CONFIG | nested).target_name == "c/d"
    assert opened().target_name is None


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("carry", "post", "post"),
        ("rope.theta", "1e4", 1e4),
        ("aux_boundaries", "2,4,8", (2, 4, 8)),
        ("aux_boundaries", "3", (3,)),
        ("fc_norm", "true", True),
        ("num_heads", "8", 8),
        ("rope.scaling", "null", None),
        ("rope.scaling", '{"rope_type": "linear", "factor": 2}', {"rope_type": "linear", "factor": 2}),
        ("sliding_window", "64,null", (64, None)),
    ],
)
def test_switches_as_typed(name: str, text: str, value: Any):
    assert parse_switch(name, text) == value


@pytest.mark.parametrize(
    ("name", "value", "pattern"),
    [
        ("carri", "post", "no switch 'carri'"),
        ("theta", 1.0, r"no switch 'theta'; did you mean rope\.theta\?"),
        ("carry", "sideways", "expected one of pre, post"),
        ("fc_norm", "maybe", "expected true or false"),
        ("num_heads", 1.5, "expected a whole number"),
        ("rope.theta", "big", "expected a number"),
        ("aux_boundaries", "a", "expected whole numbers such as 2,15,27"),
        ("rope.scaling", 3, "expected an object or null"),
    ],
)
def test_values_that_no_switch_has(name: str, value: Any, pattern: str):
    with pytest.raises(CheckpointError, match=pattern):
        opened(overrides={name: value})
