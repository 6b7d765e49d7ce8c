"""Latent attention (MLA) in EAGLE-3, GRIFFIN, and what else a drafter's own layer may hold: sizes, flags and faults."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from driftscope.checkpoints import open_state_dict, parse_switch
from driftscope.checkpoints.config import DrafterConfig
from driftscope.errors import CheckpointError
from tests.checkpoints import layouts

YARN = {"type": "yarn", "factor": 64.0, "original_max_position_embeddings": 4096, "beta_fast": 1.0, "beta_slow": 1.0,
        "mscale": 1.0, "mscale_all_dim": 1.0}  # fmt: skip


def latent(layout: str = "vllm", **changes: Any) -> tuple[dict[str, Tensor], dict[str, Any]]:
    row = next(row for row in layouts.LAYOUTS if row.name == layout)
    return layouts.stored(row.config("latent attention").replace("user", **changes), layout)


def griffin() -> tuple[dict[str, Tensor], dict[str, Any]]:
    return layouts.stored(layouts.GRIFFIN, "griffin")


def sizes(config: DrafterConfig) -> dict[str, Any]:
    return {name: getattr(config, name) for name in layouts.LATENT if name != "rope"}


def test_sizes_follow_from_the_tensors_alone():
    tensors, config = latent()
    wanted = {name: value for name, value in layouts.LATENT.items() if name != "rope"}
    for given in ({"draft_vocab_size": 10}, config):
        found = open_state_dict(tensors, given).config
        assert sizes(found) == wanted
        assert found.rope.layout == "interleaved"
    assert found.origins["kv_lora_rank"].source == found.origins["num_heads"].source == "config"
    bare = open_state_dict(tensors, {"draft_vocab_size": 10}).config
    assert bare.origins["kv_lora_rank"].source == bare.origins["num_heads"].source == "weights"
    assert "vLLM" in bare.origins["rope.layout"].detail


@pytest.mark.parametrize("layout", ["vllm", "modelopt", "torchspec"])
def test_a_published_config_of_kimi(layout: str):
    tensors, config = latent(layout)
    config = {k: v for k, v in config.items() if k != "rope_interleave"} | {"rope_scaling": YARN, "rope_theta": 50000.0}
    found = open_state_dict(tensors, config)
    assert (found.layout, found.config.rope.layout, found.config.rope.theta) == (layout, "interleaved", 50000.0)
    scaling = found.config.rope.scaling
    assert scaling is not None
    assert (scaling["rope_type"], scaling["mscale_all_dim"]) == ("yarn", 1.0)
    neox = open_state_dict(tensors, config | {"rope_interleave": False}).config
    assert (neox.rope.layout, neox.origins["rope.layout"].source) == ("neox", "config")


@pytest.mark.parametrize(
    "key", ["q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "num_attention_heads"]
)
def test_a_config_that_contradicts_the_tensors(key: str):
    tensors, config = latent()
    with pytest.raises(CheckpointError, match=rf"the config says ({key} = )?{config[key] + 1}") as caught:
        open_state_dict(tensors, config | {key: config[key] + 1})
    assert "\n" not in str(caught.value)


def test_rows_that_no_number_of_heads_gives():
    tensors, _ = latent()
    name = "layers.0.self_attn.q_b_proj.weight"
    with pytest.raises(CheckpointError, match="no number of heads gives 41 rows of q, 44 of kv_b_proj and 20 columns"):
        open_state_dict(tensors | {name: torch.cat([tensors[name], tensors[name][:1]])}, {"draft_vocab_size": 10})


@pytest.mark.parametrize("switch", ["attention_bias", "output_bias", "mlp_bias"])
def test_biases_follow_from_tensors(switch: str):
    tensors, config = latent(**{switch: True})
    assert getattr(open_state_dict(tensors, config).config, switch) is True
    plain, _ = latent()
    assert getattr(open_state_dict(plain, config).config, switch) is False


@pytest.mark.parametrize(("made", "layout"), [(latent, "vllm"), (griffin, "griffin")])
def test_missing_surplus_and_odd_tensors_are_named(made: Any, layout: str):
    tensors, config = made()
    optional = {"t2d", "embed_tokens.weight"}
    for absent in tensors.keys() - optional:
        with pytest.raises(CheckpointError) as caught:
            open_state_dict({n: t for n, t in tensors.items() if n != absent}, config)
        assert "\n" not in str(caught.value)
        assert any(word in str(caught.value) for word in ("missing", "reads", "not read here", "no drafter layout"))
    for odd, tensor in tensors.items():
        with pytest.raises(CheckpointError) as caught:
            open_state_dict(tensors | {odd: tensor[None]}, config)
        assert "\n" not in str(caught.value)
    found = open_state_dict(tensors | {"layers.0.extra.weight": torch.ones(1)}, config)
    assert (found.layout, found.unused) == (layout, ("layers.0.extra.weight",))


@pytest.mark.parametrize(
    ("switch", "value"), [("carry", "pre"), ("fc_mlp", False), ("wide_output", False), ("embed_first", False)]
)
def test_switches_of_griffin_can_be_set(switch: str, value: Any):
    tensors, config = griffin()
    if switch == "wide_output":
        with pytest.raises(
            CheckpointError, match=r"mlp\.down_proj\.weight has shape \[32, 12\], but the rest asks for"
        ):
            open_state_dict(tensors, config, overrides={switch: value, "carry": "pre"})
        return
    found = open_state_dict(tensors, config, overrides={switch: value})
    assert getattr(found.config, switch) == value
    assert (found.config.origins[switch].source, found.layout) == ("user", "griffin")


def test_griffin_has_one_layer():
    tensors, config = griffin()
    second = {n.replace("layers.0.", "layers.1."): t for n, t in tensors.items() if n.startswith("layers.0.")}
    with pytest.raises(CheckpointError, match="2 layers are stored, GRIFFIN has one"):
        open_state_dict(tensors | second, config | {"num_hidden_layers": 2})


def test_sinks_and_gates_follow_from_tensors():
    for switch, name in (("learned_sinks", "no layers.0.self_attn.sinks"), ("gated_attention", "rows of q_proj")):
        plain, config = layouts.stored(layout="vllm")
        with_it, _ = layouts.stored(layouts.PLAIN.replace("user", **{switch: True}), "vllm")
        assert getattr(open_state_dict(with_it, config).config, switch) is True
        found = open_state_dict(plain, config).config
        assert getattr(found, switch) is False
        assert name in found.origins[switch].detail


def test_a_wrong_number_of_sinks():
    tensors, config = layouts.stored(layouts.PLAIN.replace("user", learned_sinks=True), "vllm")
    wrong = {"layers.0.self_attn.sinks": torch.zeros(3)}
    with pytest.raises(CheckpointError, match=r"self_attn\.sinks has shape \[3\], but the rest asks for \[4\]"):
        open_state_dict(tensors | wrong, config)


def test_sizes_of_latents_are_typed_as_numbers_or_null():
    assert parse_switch("kv_lora_rank", "512") == 512
    assert parse_switch("q_lora_rank", "null") is None
    with pytest.raises(CheckpointError, match="kv_lora_rank is 'wide', expected a whole number"):
        parse_switch("kv_lora_rank", "wide")
    assert parse_switch("draft_kv", "round") == "round"
    with pytest.raises(CheckpointError, match="expected one of kept, round, step"):
        parse_switch("draft_kv", "never")
