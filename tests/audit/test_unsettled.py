"""A bare state dict says no rope base: what the texts cannot tell is said, and what they can is not."""

from __future__ import annotations

import dataclasses

import pytest

from driftscope.audit.report import Row
from driftscope.audit.unsettled import unsettled
from driftscope.checkpoints.checkpoint import Checkpoint
from driftscope.checkpoints.config import Origin
from tests import tiny


def bare(source="default", raw=None):
    config = dataclasses.replace(tiny.CONFIG, origins={"rope.theta": Origin(source)})
    return Checkpoint("bare.pt", "", "safeailab", "", config, {}, None, raw or {}, (), {}, (), ())


def row(status="indistinguishable", why="the target's"):
    return Row(1, "DS204", "rope.theta", "10000", f"100000 ({why})", status)


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
