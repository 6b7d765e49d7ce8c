"""What a config cannot say goes into the tensors: the same drafter in another spelling."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from driftscope.audit.batches import prepare
from driftscope.audit.canonical import canonical
from driftscope.audit.score import Runner
from driftscope.audit.setting import Setting
from driftscope.captures.capture import capture
from driftscope.checkpoints.config import Rope
from tests import tiny
from tests.closeness import assert_same
from tests.tiny_target import ROUNDED, VOCAB, tiny_prompts, tiny_target

CONFIG = dataclasses.replace(
    tiny.CONFIG, hidden_size=32, target_hidden_size=32, vocab_size=VOCAB, aux_boundaries=(1, 2, 3)
)


@pytest.fixture(scope="module")
def runner():
    target = tiny_target()
    records = capture(target, tiny_prompts(6, 9), max_new_tokens=16, boundaries=range(5))
    return Runner(prepare(target, records, anchors=6), target.embedding_weight, target.head_weight, torch.float32)


@pytest.mark.numeric("plain")
@pytest.mark.parametrize(
    "changes",
    [
        {"aux_boundaries": (3, 1, 2)},
        {"aux_boundaries": (3, 1, 2), "fc_norm": True},
        {"aux_boundaries": (2, 3, 1), "input_norm": True},
        {"embed_first": False},
        {"norm_offset": 1.0},
        {"rope": Rope(layout="interleaved")},
        {"rope": Rope(layout="interleaved"), "qk_norm": True},
        {"vocab_map": "none"},
        {"final_norm": False},
    ],
    ids=str,
)
def test_the_canonical_form_scores_the_same(changes, runner):
    config = dataclasses.replace(CONFIG, **changes)
    setting = Setting(config, tiny.weights(config))
    plain = canonical(setting)
    assert plain.config.rope.layout == "neox"
    assert plain.config.aux_boundaries == (1, 2, 3)
    assert (plain.config.embed_first, plain.config.norm_offset, plain.config.vocab_map) == (True, 0.0, "offset")
    assert plain.left == ()
    scores, _ = runner.run(setting)
    again, _ = runner.run(Setting(plain.config, plain.weights))
    assert_same(again.loss, scores.loss, **ROUNDED, dtype=torch.float32)
    np.testing.assert_array_equal(again.agree, scores.agree)


def test_what_only_an_engine_can_do_is_left():
    setting = Setting(CONFIG, tiny.weights(CONFIG)).changed({}, {}, {"lag": -1, "own_rows": False})
    assert canonical(setting).left == ("predictions -1 positions off", "rows of earlier steps dropped")
