"""The lean measure against the chain, the one definition of what a drafter does."""

from __future__ import annotations

import dataclasses
import math

import nnsight
import numpy as np
import pytest
import torch

from driftscope.audit.batches import DEPTH, LAGS, prepare
from driftscope.audit.score import Runner
from driftscope.audit.setting import Setting
from driftscope.captures.capture import capture
from driftscope.chain.chain import Chain, chain_inputs
from driftscope.chain.drafter_inputs import drafter_text
from driftscope.chain.observe import observe
from driftscope.chain.prefix import prefix_pass
from driftscope.drafter.attention import Window
from tests import tiny
from tests.closeness import assert_same
from tests.tiny_target import ROUNDED, VOCAB, tiny_prompts, tiny_target

pytestmark = pytest.mark.numeric("plain")
CONFIG = dataclasses.replace(
    tiny.CONFIG, hidden_size=32, target_hidden_size=32, vocab_size=VOCAB, aux_boundaries=(1, 2, 3)
)
VARIANTS = {
    "pre-norm": {},
    "eagle3.1": {"fc_norm": True, "carry": "post"},
    "residual-normed": {"residual": "normed"},
    "two-layers": {"num_layers": 2},
    "window": {"sliding_window": (3,)},
    "increment": {"position_increment": 2},
}


@pytest.fixture(scope="module")
def target():
    return tiny_target()


@pytest.fixture(scope="module")
def captures(target):
    return capture(target, tiny_prompts(5, 11, 8), max_new_tokens=20, boundaries=range(5))


def prepared(variant, target, captures):
    config = dataclasses.replace(CONFIG, **VARIANTS[variant])
    weights = tiny.weights(config)
    weights.pop("embed_tokens.weight")
    runner = Runner(prepare(target, captures, anchors=6), target.embedding_weight, target.head_weight, torch.float32)
    return Setting(config, weights), runner


def reference(setting, runner, target, record, anchors, feed):
    """Loss [anchor, step], drafted [anchor, step] from the chain itself and a dense distribution."""
    drafter = runner.build(setting)
    text = drafter_text(setting.config, record, device="cpu", dtype=torch.float32)
    windows = [Window(size) for size in setting.config.sliding_window or (None,) * setting.config.num_layers]
    passed = prefix_pass(drafter, text, windows, sinks=(), horizon=DEPTH)
    inputs = chain_inputs(text, passed.prefix, windows, anchors=anchors, depth=DEPTH, feed=feed)
    steps = observe(
        nnsight.NNsight(Chain(drafter)), inputs, lambda k, rows, v: {"logits": v["logits"].clone()}, sites=["logits"]
    )
    losses, drafted = [], []
    for step, seen in enumerate(steps, start=1):
        p = target.head(record.final[anchors + step]).softmax(-1).double()
        q = torch.zeros(len(anchors), VOCAB, dtype=torch.float64)
        q[:, drafter.target_ids] = seen["logits"].double().softmax(-1)
        losses.append(-(p * (0.999 * q + 0.001 / VOCAB).log()).sum(-1))
        drafted.append(drafter.target_ids[seen["logits"].argmax(-1)])
    return torch.stack(losses, 1), torch.stack(drafted, 1)


@pytest.mark.parametrize("variant", VARIANTS)
def test_loss_and_agreement_are_those_of_the_chain(variant, target, captures):
    setting, runner = prepared(variant, target, captures)
    scores, _ = runner.run(setting)
    for batch in runner.material.batches:
        for row, prompt in enumerate(batch.prompts.tolist()):
            anchors = batch.anchors[row][batch.valid[row]]
            record = runner.material.captures[prompt]
            losses, drafted = reference(setting, runner, target, record, anchors, "text")
            assert_same(scores.loss[prompt], losses.sum(0), **ROUNDED, dtype=torch.float32)
            text = record.token_ids[anchors[:, None] + torch.arange(2, DEPTH + 2)]
            np.testing.assert_array_equal(scores.agree[prompt], (drafted == text).sum(0))


def test_acceptance_is_that_of_the_drafted_chain(target, captures):
    setting, runner = prepared("pre-norm", target, captures)
    # A head that always drafts the text's most frequent tokens accepts some.
    common = (
        torch.cat([record.token_ids for record in captures]).bincount(minlength=VOCAB).topk(20).indices.sort().values
    )
    setting = setting.changed({}, {"d2t": common - torch.arange(20)}, {})
    scores, _ = runner.run(setting)
    accepted = np.zeros(DEPTH)
    for batch in runner.material.batches:
        for row, prompt in enumerate(batch.prompts.tolist()):
            anchors = batch.anchors[row][batch.valid[row]]
            record = runner.material.captures[prompt]
            _, drafted = reference(setting, runner, target, record, anchors, "drafted")
            text = record.token_ids[anchors[:, None] + torch.arange(2, DEPTH + 2)]
            accepted += (drafted == text).cumprod(1).sum(0).numpy()
    np.testing.assert_array_equal(scores.accepted.sum(0), accepted)
    assert accepted[0] > 0


@pytest.mark.parametrize(
    ("reach", "changes", "lens"),
    [
        ("later", {"carry": "post"}, {}),
        ("later", {"position_increment": 0}, {}),
        ("later", {}, {"own_rows": False}),
        ("logits", {"final_norm": False}, {}),
        ("labels", {}, {"lag": -1}),
        ("chain", {}, {"chain_shift": 2}),
        ("chain", {"residual": "normed"}, {}),
        ("chain", {"hidden_act": "gelu_pytorch_tanh"}, {}),
        ("chain", {"draft_kv": "round"}, {}),
        ("all", {"rope.theta": 200.0}, {}),
        ("all", {"rms_norm_eps": 1e-2}, {}),
        ("all", {}, {"feature_shift": -1}),
        ("all", {}, {"shuffle": "tokens"}),
    ],
)
def test_what_is_shared_with_the_declared_run_changes_nothing(reach, changes, lens, target, captures):
    setting, runner = prepared("pre-norm", target, captures)
    declared, base = runner.run(setting)
    other = setting.changed(changes, {}, lens)
    shared, _ = runner.run(other, reach=reach, base=base)
    whole, _ = runner.run(other)
    assert_same(shared.loss, whole.loss, **ROUNDED, dtype=torch.float32)
    assert not np.allclose(shared.loss, declared.loss)
    np.testing.assert_array_equal(declared.loss, runner.run(setting)[0].loss)


def test_later_layers_take_no_keys_of_another_setting(target, captures):
    setting, runner = prepared("two-layers", target, captures)
    _, base = runner.run(setting)
    other = setting.changed({"residual": "normed"}, {}, {})
    shared, _ = runner.run(other, reach="chain", base=base)
    whole, _ = prepared("two-layers", target, captures)[1].run(other)
    np.testing.assert_allclose(shared.loss, whole.loss, rtol=1e-6)


def test_padding_and_batches_change_nothing(target, captures):
    setting, runner = prepared("pre-norm", target, captures)
    together, _ = runner.run(setting)
    for index, record in enumerate(runner.material.captures):
        alone = Runner(prepare(target, [record], anchors=6), target.embedding_weight, target.head_weight, torch.float32)
        assert_same(alone.run(setting)[0].loss[0], together.loss[index], **ROUNDED, dtype=torch.float32)


def test_a_lag_compares_with_the_distribution_of_another_position(target, captures):
    _, runner = prepared("pre-norm", target, captures)
    batch = runner.material.batches[0]
    record = runner.material.captures[int(batch.prompts[0])]
    anchor = int(batch.anchors[0, 0])
    for lag in (*LAGS, 0):
        wanted = target.head(record.final[anchor + 1 + lag]).softmax(-1).topk(5)
        place = 1 + lag - (LAGS[0] + 1)
        assert torch.equal(batch.top_ids[0, 0, place, :5], wanted.indices)
        assert_same(batch.top_probabilities[0, 0, place, :5], wanted.values, **ROUNDED)


def test_repeated_draft_ids_add_up_and_unknown_tokens_cost_the_floor(target, captures):
    setting, runner = prepared("pre-norm", target, captures)
    one = setting.changed({"vocab_map": "index"}, {"d2t": torch.full((20,), 7)}, {})
    scores, _ = runner.run(one)
    expected = 0.0
    for batch in runner.material.batches:
        place = 1 - (LAGS[0] + 1)
        seven = ((batch.top_ids[:, :, place] == 7) * batch.top_probabilities[:, :, place]).sum(-1)[batch.valid]
        sure, floor = math.log(0.999 + 0.001 / VOCAB), math.log(0.001 / VOCAB)
        expected -= float((seven * sure + (1 - seven) * floor).sum())
    assert_same(scores.loss[:, 0].sum(), expected, **ROUNDED, dtype=torch.float32)


def test_features_before_the_text_are_not_read(target, captures):
    setting, runner = prepared("pre-norm", target, captures)
    batch = runner.material.batches[0]
    plain = runner.material.features(setting, batch, torch.float32)
    shifted = runner.material.features(setting.changed({}, {}, {"feature_shift": -2}), batch, torch.float32)
    assert torch.equal(shifted[0, 2:], plain[0, :-2])
    assert torch.equal(shifted[0, 0], plain[0, 0])
