"""Dead tensors are named, with what follows, by inspect and before a probe loads its target."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from driftscope.chain.pair import load_pair
from driftscope.checkpoints import inspect_checkpoint, save_checkpoint
from driftscope.checkpoints.dead import dead_tensors
from driftscope.cli import app
from driftscope.errors import CheckpointError
from tests.audit import pair as planted

CONFIG = planted.planted_config("eagle3.1")
NO_TARGET = "/nowhere/target"
ZERO = {
    "layers.0.self_attn.q_proj.weight": "every position is attended to alike",
    "layers.0.self_attn.k_proj.weight": "every position is attended to alike",
    "layers.0.self_attn.v_proj.weight": "attention adds nothing to the state",
    "layers.0.self_attn.o_proj.weight": "attention adds nothing to the state",
    "layers.0.mlp.gate_proj.weight": "the MLP adds nothing to the state",
    "layers.0.mlp.up_proj.weight": "the MLP adds nothing to the state",
    "layers.0.mlp.down_proj.weight": "the MLP adds nothing to the state",
    "layers.0.input_layernorm.weight": "the drafter ignores the tokens",
    "layers.0.hidden_norm.weight": "attention ignores the state that is carried",
    "layers.0.post_attention_layernorm.weight": "the MLP adds nothing to the state",
    "fc.weight": "the drafter reads nothing of the target's features",
    "fc_norm.1.weight": "the drafter reads nothing of aux feature 1: its share of the fused input is 0",
    "norm.weight": "every token gets the same logit: the output ignores its input",
    "lm_head.weight": "every token gets the same logit: the output ignores its input",
}


def weights(**changes: torch.Tensor) -> dict[str, torch.Tensor]:
    return {**planted.planted_weights("eagle3.1"), **changes}


@pytest.mark.parametrize("name", ZERO)
def test_a_zero_tensor_is_named_with_what_follows(name: str) -> None:
    held = weights(**{name: torch.zeros_like(weights()[name])})
    (dead,) = dead_tensors(CONFIG, held)
    assert (dead.name, dead.what) == (name, "is all zero")
    assert dead.follows.startswith(ZERO[name])


def test_every_weight_of_the_planted_drafter_is_in_the_table() -> None:
    assert set(ZERO) | {"d2t"} | {f"fc_norm.{i}.weight" for i in (0, 2)} == set(weights())


def test_other_ways_to_be_dead() -> None:
    head, fc = weights()["lm_head.weight"], weights()["fc.weight"].clone()
    fc[:, 32:64] = 0
    said = {
        "lm_head.weight": (head[:1].expand_as(head).clone(), "has 56 equal rows"),
        "fc.weight": (fc, "is zero in the 32 columns of aux feature 1 (boundary 4)"),
        "layers.0.self_attn.o_proj.weight": (torch.full((32, 32), 0.02), "holds 0.02 everywhere"),
    }
    for name, (tensor, what) in said.items():
        assert [(dead.name, dead.what) for dead in dead_tensors(CONFIG, weights(**{name: tensor}))] == [(name, what)]


def test_what_is_meant_to_be_zero_is_alive() -> None:
    assert dead_tensors(CONFIG, weights()) == []
    gemma = dataclasses.replace(CONFIG, norm_offset=1.0)
    zero = {name: torch.zeros_like(tensor) for name, tensor in weights().items() if "norm" in name}
    assert (
        dead_tensors(
            gemma, {**zero, "layers.0.self_attn.q_proj.bias": torch.zeros(32), "mask_hidden": torch.zeros(1, 1, 96)}
        )
        == []
    )
    assert dead_tensors(gemma, {"norm.weight": torch.full((32,), -1.0)})[0].what == "is all -1"


def test_inspect_and_probe_say_it_and_exit_2(tmp_path: Path) -> None:
    """Before the target is loaded: the one that is named does not exist."""
    name = "layers.0.self_attn.o_proj.weight"
    held = weights(**{name: torch.zeros_like(weights()[name])})
    save_checkpoint(tmp_path / "d", CONFIG, held, "specforge")
    stored = "midlayer.self_attn.o_proj.weight is all zero: attention adds nothing to the state"
    assert any(stored in problem for problem in inspect_checkpoint(tmp_path / "d").problems)
    shown = CliRunner().invoke(app, ["inspect", str(tmp_path / "d")])
    assert shown.exit_code == 2
    assert stored in " ".join(shown.output.split())
    with pytest.raises(CheckpointError, match=r"o_proj\.weight is all zero: attention adds nothing"):
        load_pair(tmp_path / "d", planted.planted_target())
    # The files are read before a target that takes its time.
    planted.planted_target().model.config.save_pretrained(tmp_path / "only-a-config")
    probed = CliRunner().invoke(
        app, ["probe", str(tmp_path / "d"), "--target", str(tmp_path / "only-a-config"), "-o", str(tmp_path / "r")]
    )
    assert probed.exit_code == 2
    assert stored in " ".join(probed.output.split())
    assert "internal error" not in probed.output
