"""A bare state dict says no rope base: what the texts cannot tell is said, and what they can is not."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from driftscope.audit.hypotheses import TargetFacts, hypotheses
from driftscope.audit.report import Row
from driftscope.audit.setting import Setting
from driftscope.audit.unsettled import unsettled
from driftscope.checkpoints.checkpoint import Checkpoint
from driftscope.checkpoints.config import Origin
from tests import tiny


def bare(source="default", raw=None):
    config = dataclasses.replace(tiny.CONFIG, origins={"rope.theta": Origin(source)})
    return Checkpoint("bare.pt", "", "safeailab", "", config, {}, None, raw or {}, (), {}, (), ())


def row(status="indistinguishable", why="the target's"):
    return Row(1, "DS204", "rope.theta", "10000", f"100000 ({why})", status, flag="--rope-theta 100000")


def test_an_assumed_base_that_the_texts_cannot_tell_from_the_targets_is_named():
    (line,) = unsettled(bare(), [row(why="in wide use"), row()])
    assert "--rope-theta 100000" in line
    assert "10000 is assumed" in line
    assert "\n" not in line


@pytest.mark.parametrize(
    ("checkpoint", "rows"),
    [
        (bare(), [row("worse")]),
        (bare(), [row("better")]),
        (bare(), []),
        (bare("user"), [row()]),
        # Trainers that write a config without rope_theta train with 10000.
        (bare(raw={"model_type": "llama"}), [row()]),
    ],
)
def test_what_is_told_or_written_is_settled(checkpoint, rows):
    assert unsettled(checkpoint, rows) == ()


def silent(switch, source="default"):
    config = dataclasses.replace(tiny.CONFIG, origins={switch: Origin(source)})
    return Checkpoint("drafter", "", "specforge", "", config, {}, None, {"model_type": "llama"}, (), {}, (), ())


SCALED = Row(
    1, "DS204", "rope.scaling", "off", "the target's", "indistinguishable", settled_by="texts of more than 8,192 tokens"
)  # fmt: skip


def test_a_scaling_that_only_the_target_has_is_not_settled_by_short_texts():
    (line,) = unsettled(silent("rope.scaling"), [SCALED])
    assert line.startswith(
        "rope.scaling: no file says it, off is assumed, and the target's does as well on these texts"
    )
    assert line.endswith("texts of more than 8,192 tokens settle it")
    assert unsettled(silent("rope.scaling", "config"), [SCALED]) == ()
    assert unsettled(silent("rope.scaling"), [dataclasses.replace(SCALED, status="worse")]) == ()


def test_the_length_is_the_one_before_scaling():
    scaling = {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192}
    target = TargetFacts(8, torch.zeros(60, 24), torch.zeros(60, 24), rope_scaling=scaling)

    def found(scaling):
        setting = Setting(tiny.CONFIG, tiny.weights(tiny.CONFIG))
        known = dataclasses.replace(target, rope_scaling=scaling)
        return next(h for h in hypotheses(setting, known) if h.switch == "rope.scaling")

    assert "more than 8,192 tokens" in found(scaling).settled_by
    limit = tiny.CONFIG.rope.max_position
    assert f"more than {limit:,} tokens" in found({"rope_type": "dynamic", "factor": 2.0}).settled_by


def test_boundaries_and_carry_that_no_file_says_are_listed_with_what_does_as_well():
    def other(alternative, status="indistinguishable", **more):
        return Row(1, "DS202", "aux_boundaries", "2, 4, 5", alternative, status, **more)

    rows = [
        other("3, 5, 6 (all +1)", flag="--aux 3,5,6"),
        other("1, 3, 4 (all -1)", "worse"),
        other("4, 2, 5 (order)"),
        other("2, 4, 6 (search: best single replacement)", searched=True),
        Row(1, "DS201", "carry", "pre", "post", "indistinguishable", flag="--carry post"),
        Row(1, "DS205", "rms_norm_eps", "1e-06", "1e-05", "indistinguishable"),
    ]
    (line,) = unsettled(silent("aux_boundaries"), rows)
    assert "2, 4, 5 is assumed, and 3, 5, 6 (all +1) does as well" in line
    assert "--aux 3,5,6 if it was trained so; more prompts" in line
    (line,) = unsettled(silent("carry"), rows)
    assert "--carry post" in line
    assert unsettled(silent("rms_norm_eps"), rows) == ()
