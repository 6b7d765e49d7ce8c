"""A planted collapse is found at its step; a drafter that never tires has none."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
import pytest
import torch

from driftscope.chain.pair import Pair
from driftscope.errors import DriftscopeError
from driftscope.figures import depth_figures
from driftscope.figures.depth import collapse
from driftscope.probes.depth import DepthProbe
from driftscope.runs.schema import ANCHORS, HEADS
from tests.closeness import assert_same
from tests.probes import planted
from tests.tiny_target import ROUNDED

SETTINGS = dataclasses.replace(planted.SETTINGS, depth=2, horizon=6)


def tiring(step: int) -> Pair:
    """Right until `step`, from which on it drafts token 0: three spare dimensions of the state count the steps."""
    clock = planted.SUCCESSOR.clone()
    for place in range(planted.TOKENS, planted.WIDTH - 1):
        clock[place + 1, place] = 1.0
    clock[-1, -1] = 1.0
    head = planted.UNITS[: planted.TOKENS].clone()
    head[0, planted.TOKENS + step] = 10.0
    head[0, -1] = 10.0
    return planted.planted_pair(planted.ZERO, clock, lm_head__weight=head)


def figures(pair: Pair, prompts: int, clocked: bool = False):  # type: ignore[no-untyped-def]
    parts = []
    for number in range(prompts):
        made = planted.capture(number)
        final = made.final + (planted.UNITS[planted.TOKENS] if clocked else 0)
        parts.append(DepthProbe().measure(planted.subject(pair, number, SETTINGS, final=final)))
    anchors, heads = (pd.concat([part[name] for part in parts], ignore_index=True) for name in ("anchors", "heads"))
    return depth_figures(ANCHORS.frame(ANCHORS.conform(anchors)), HEADS.frame(HEADS.conform(heads)), resamples=100)


def test_a_planted_collapse_is_found_at_its_step() -> None:
    found = figures(tiring(3), 12, clocked=True)
    assert found["collapse"] == 3
    assert len(found["drafted"]) == len(found["text"]) == 6
    agreement = [step["agreement"]["mean"] for step in found["text"]]
    assert agreement[:2] == [1, 1]
    assert max(agreement[2:]) < 0.2
    conditional = [step["conditional"]["mean"] for step in found["drafted"][:3]]
    assert conditional[:2] == [1, 1]
    assert conditional[2] < 0.2
    # The few chains that token 0 keeps alive are too few to measure.
    assert found["drafted"][4]["reached"] < 20
    assert "conditional" not in found["drafted"][4]
    assert found["text"][1]["rank"]["mean"] == 1
    assert found["text"][3]["rank"]["mean"] > 1.5
    assert found["text"][3]["ranked"]["mean"] == 1


@pytest.mark.numeric("plain")
def test_a_drafter_that_never_tires_has_no_collapse() -> None:
    found = figures(planted.from_state(), 2)
    assert found["collapse"] == "none"
    assert all(step["conditional"]["mean"] == 1 for step in found["drafted"])
    assert all(step["growth"]["mean"] == pytest.approx(1) for step in found["text"])
    total = sum(figure["mean"] for name, figure in found["text"][4]["mass"].items() if name != "self_generated")
    assert_same(total, 1.0, **ROUNDED, dtype=torch.float32)


def test_collapse_reads_shares_of_step_1() -> None:
    assert collapse(np.array([1.0, 0.5, 0.6])) == "none"
    assert collapse(np.array([1.0, 0.6, 0.49, 0.6])) == 3
    assert collapse(np.array([np.nan, np.nan])) == "not measurable"


def test_a_drafter_that_is_never_right_cannot_collapse() -> None:
    wrong = planted.planted_pair(planted.ZERO, torch.eye(planted.WIDTH))
    assert figures(wrong, 2)["collapse"] == "not measurable"


def test_steps_are_settable_up_to_the_horizon() -> None:
    subject = planted.subject(planted.from_state(), settings=SETTINGS)
    assert DepthProbe(steps=3).measure(subject)["steps"]["step"].max() == 3
    with pytest.raises(DriftscopeError, match="asks for 7 steps, anchors have 6 ahead: raise --horizon"):
        DepthProbe(steps=7).measure(subject)
