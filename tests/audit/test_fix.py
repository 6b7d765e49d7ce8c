"""A corrected copy opens, runs as the audit said, and keeps everything else."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from benchmarks.twins import BY_NAME, broken
from driftscope.audit import audit_captures
from driftscope.audit.decide import Limits
from driftscope.audit.fix import flag
from driftscope.audit.hypotheses import Hypothesis
from driftscope.chain.pair import load_pair
from driftscope.checkpoints import save_checkpoint
from driftscope.errors import CheckpointError
from tests.audit import pair as planted

LIMITS = Limits(flips=999, rounds=2)
SOUND = {"eagle3": 1.86, "eagle3.1": 2.47}
"""Accepted tokens per anchor of the drafters as they were trained."""


def audited(folder, switches, overrides=None):
    """Only these switches are tried: that the right one of all is named is tested elsewhere."""
    pair = load_pair(folder, planted.planted_target(), overrides=overrides)
    return audit_captures(pair, planted.captures(), limits=LIMITS, switches=switches)


def stored(folder, names, variant="eagle3", layout="specforge", **extra):
    config, weights = planted.planted_config(variant), planted.planted_weights(variant)
    config, weights = broken(names, config, weights, planted.planted_target().head_weight)
    return save_checkpoint(folder, config, weights, layout, extra_config=extra)


@pytest.mark.parametrize(
    ("name", "variant", "layout", "changed", "tensors"),
    [
        ("carry", "eagle3", "specforge", {"norm_output"}, False),
        ("carry", "eagle3", "vllm", {"norm_output"}, False),
        ("aux -1", "eagle3", "specforge", {"eagle_aux_hidden_state_layer_ids"}, False),
        ("aux +1", "eagle3", "speculators", {"eagle_aux_hidden_state_layer_ids"}, False),
        ("aux order", "eagle3.1", "specforge", set(), True),
        ("d2t of another run", "eagle3", "specforge", set(), True),
        ("random head", "eagle3", "specforge", set(), True),
        ("fc_norm left out", "eagle3.1", "specforge", {"fc_norm"}, False),
        ("residual", "eagle3", "speculators", {"norm_before_residual"}, False),
        ("rope theta", "eagle3", "safeailab", {"rope_theta"}, False),
        ("1 + w", "eagle3", "specforge", set(), True),
        ("state first", "eagle3", "specforge", set(), True),
    ],
)
def test_the_copy_is_sound(name, variant, layout, changed, tensors, tmp_path):
    folder = stored(tmp_path / "twin", (name,), variant, layout, kept_key="kept")
    switches = {BY_NAME[name].switch}
    found = audited(folder, switches)
    assert found.faults, found.verdict
    fixed = found.write_fix(tmp_path / "fixed")
    assert {key.rpartition(".")[2] for key in fixed.config} >= changed
    assert bool(fixed.tensors) is tensors
    assert not fixed.left
    assert json.loads((tmp_path / "fixed" / "config.json").read_text())["kept_key"] == "kept"
    again = audited(tmp_path / "fixed", switches)
    assert again.outcome == "holds", again.verdict
    assert again.baseline.length > found.baseline.length + 0.1
    if name != "rope theta":  # Theta 1000 is none of the alternatives; 10000 is the nearest.
        assert again.baseline.length == pytest.approx(SOUND[variant], abs=0.05)


def test_what_no_layout_can_say_is_an_error_that_names_it(tmp_path):
    folder = stored(tmp_path / "twin", (), "eagle3.1")
    found = audited(folder, {"position_increment"}, {"position_increment": 2})
    assert found.faults[0].switch == "position_increment"
    with pytest.raises(CheckpointError, match="nothing to write"):
        # The file itself has increment 1: it was the flag that was wrong.
        found.write_fix(tmp_path / "fixed")
    assert not (tmp_path / "fixed").exists()


def test_an_existing_folder_is_not_written_into(tmp_path):
    found = audited(stored(tmp_path / "twin", ("carry",)), {"carry"})
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "mine.txt").write_text("mine")
    with pytest.raises(CheckpointError, match="not empty"):
        found.write_fix(tmp_path / "there")


def test_another_spelling_that_would_win_is_dropped_and_tensors_without_meaning_stay(tmp_path):
    folder = stored(tmp_path / "twin", (), eagle_aux_hidden_state_layer_ids=[3, 5, 6])
    state = load_file(folder / "model.safetensors")
    save_file({**state, "extra.weight": torch.ones(2)}, folder / "model.safetensors")
    found = audited(folder, {"aux_boundaries"})
    assert found.faults[0].switch == "aux_boundaries"
    found.write_fix(tmp_path / "fixed")
    config = json.loads((tmp_path / "fixed" / "config.json").read_text())
    assert "eagle_aux_hidden_state_layer_ids" not in config
    assert "extra.weight" in load_file(tmp_path / "fixed" / "model.safetensors")
    assert audited(tmp_path / "fixed", {"aux_boundaries"}).outcome == "holds"


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"carry": "post"}, "--carry post"),
        ({"aux_boundaries": (2, 4, 5)}, "--aux 2,4,5"),
        ({"aux_boundaries": (4, 2, 5)}, None),
        ({"rope.theta": 10000.0}, "--rope-theta 10000"),
        ({"rope.scaling": None}, "--set rope.scaling=none"),
        ({"fc_norm": True, "input_norm": False}, "--set fc_norm=true --set input_norm=false"),
        ({"vocab_map": "index"}, "--set vocab_map=index"),
    ],
    ids=str,
)
def test_flags(changes, wanted):
    assert flag(Hypothesis("switch", "declared", "other", "DS200", changes)) == wanted
