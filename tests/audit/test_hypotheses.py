"""Which alternatives are listed, which the shapes rule out, and why."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from driftscope.audit.hypotheses import TargetFacts, aux_orders, hypotheses
from driftscope.audit.setting import Setting
from driftscope.audit.vocabulary import head_rows, other_maps
from driftscope.checkpoints.config import Rope
from driftscope.drafter.build import target_token_ids
from driftscope.findings.checkpoint_codes import CODES
from tests import tiny

GENERATOR = torch.Generator().manual_seed(0)
TARGET = TargetFacts(
    num_layers=8,
    embedding=torch.randn(60, 24, generator=GENERATOR),
    head=torch.randn(60, 24, generator=GENERATOR),
    rope_theta=500000.0,
)
EAGLE1 = dataclasses.replace(
    tiny.CONFIG,
    layer_form="eagle1",
    feature_source="final",
    aux_boundaries=None,
    num_aux=1,
    final_norm=False,
    head="target",
    draft_vocab_size=60,
    vocab_map="none",
)


def listed(config, target=TARGET, **weights):
    setting = Setting(config, {**tiny.weights(config), **weights})
    return {(h.switch, h.alternative): h for h in hypotheses(setting, target)}


def test_every_code_is_documented_and_unique():
    codes = [code.code for code in CODES]
    assert len(set(codes)) == len(codes)
    assert {h.code for h in listed(tiny.CONFIG).values()} <= set(codes)
    assert all(code.meaning and code.advice and code.limits for code in CODES)


def test_all_alternatives_that_are_not_ruled_out_can_be_built():
    for config in (
        tiny.CONFIG,
        EAGLE1,
        dataclasses.replace(tiny.CONFIG, fc_norm=True, carry="post", qk_norm=True),
        dataclasses.replace(tiny.CONFIG, input_norm=True, rope=Rope(layout="interleaved"), attention_bias=True),
        dataclasses.replace(EAGLE1, layer_form="mtp", carry="post", final_norm=True),
        dataclasses.replace(EAGLE1, wide_output=True, carry="second", head="target"),
        dataclasses.replace(tiny.CONFIG, learned_sinks=True, gated_attention=True, draft_kv="round"),
        dataclasses.replace(tiny.CONFIG, num_layers=2, aux_boundaries=(2, 4, 8), sliding_window=(4, None)),
    ):
        setting = Setting(config, tiny.weights(config))
        for hypothesis in hypotheses(setting, TARGET):
            if not hypothesis.ruled_out:
                assert hypothesis.changes or hypothesis.weights or hypothesis.lens
                hypothesis.apply(setting).build(TARGET.embedding, TARGET.head)


def test_names_are_unique():
    found = hypotheses(Setting(tiny.CONFIG, tiny.weights(tiny.CONFIG)), TARGET)
    names = [h.name for h in found]
    assert len(set(names)) == len(names)


def test_aux_boundaries_are_shifted_defaulted_and_reordered():
    found = [
        h.changes["aux_boundaries"] for (switch, _), h in listed(tiny.CONFIG).items() if switch == "aux_boundaries"
    ]
    assert found[:3] == [(2, 3, 4), (0, 1, 2), (2, 4, 5)]
    assert set(found[3:]) == {(1, 3, 2), (2, 1, 3), (2, 3, 1), (3, 1, 2), (3, 2, 1)}
    assert len(aux_orders((1, 2, 3, 4, 5))) == 5


def test_boundaries_outside_the_target_are_ruled_out():
    config = dataclasses.replace(tiny.CONFIG, aux_boundaries=(0, 4, 8))
    reasons = {alt: h.ruled_out for (switch, alt), h in listed(config).items() if switch == "aux_boundaries"}
    assert reasons["1, 5, 9 (all +1)"] == "outside the target"
    assert reasons["2, 4, 5 (published default)"] == ""


def test_the_state_before_and_after_the_final_norm():
    found = listed(EAGLE1)["feature_source", "last hidden state before the final norm"]
    assert found.changes == {"final_feature_normed": False}
    assert found.code == "DS206"
    last = listed(dataclasses.replace(tiny.CONFIG, aux_boundaries=(2, 4, 8)))
    assert last["feature_source", "boundary 8 after the final norm"].lens == {"last_after_norm": True}
    assert "fc reads 3 aux features" in listed(tiny.CONFIG)["feature_source", "none"].ruled_out


@pytest.mark.parametrize(
    ("config", "switch", "alternative", "reason"),
    [
        (tiny.CONFIG, "embedding", "own", "no embed_tokens.weight is stored"),
        (tiny.CONFIG, "embed_scale", "4.89898", "takes any scale away"),
        (tiny.CONFIG, "rope.scaling", "on", "neither the drafter nor the target has any"),
        (tiny.CONFIG, "layer_form", "another", "attention reads 2H"),
        (tiny.CONFIG, "head_dim", "16", ""),
        (EAGLE1, "residual", "normed", "no norm for the state"),
        (EAGLE1, "carry", "post", "no norm.weight is stored"),
        (EAGLE1, "vocab_map", "none", "the draft vocabulary is the target's"),
        (EAGLE1, "aux_boundaries", "none", "reads the last hidden state only"),
        (EAGLE1, "embed_scale", "4.89898", ""),
    ],
)
def test_what_shapes_rule_out_says_why(config, switch, alternative, reason):
    setting = Setting(config, {k: v for k, v in tiny.weights(config).items() if k != "embed_tokens.weight"})
    found = next(h for h in hypotheses(setting, TARGET) if (h.switch, h.alternative) == (switch, alternative))
    assert reason in found.ruled_out
    assert bool(found.ruled_out) is bool(reason)


def test_norms_before_fc_use_stored_weights_or_ones():
    stored = listed(tiny.CONFIG, **{f"fc_norm.{i}.weight": torch.full((24,), 2.0) for i in range(3)})
    assert stored["norms before fc", "one per aux feature"].weights == {}
    ones = listed(tiny.CONFIG)["norms before fc", "one per aux feature, weights of one"]
    assert torch.equal(ones.weights["fc_norm.2.weight"], torch.ones(24))
    assert listed(dataclasses.replace(tiny.CONFIG, fc_norm=True))["norms before fc", "none"].changes["fc_norm"] is False


def test_pairings_that_give_the_answer_away_are_not_tried():
    for hypothesis in listed(tiny.CONFIG).values():
        assert hypothesis.lens.get("feature_shift", 0) <= 0
        assert hypothesis.lens.get("token_shift", 0) <= 0


def map_setting(head, d2t):
    weights = {**tiny.weights(tiny.CONFIG), "lm_head.weight": head, "d2t": d2t}
    return Setting(tiny.CONFIG, weights)


def test_the_map_is_found_in_the_rows_of_the_head():
    true = torch.arange(3, 43, 2)
    wrong = torch.arange(20) * 2
    noisy = TARGET.head[true] * 1.5 + 0.01 * torch.randn(20, 24, generator=GENERATOR)
    setting = map_setting(noisy, wrong - torch.arange(20))
    found = dict(other_maps(setting, TARGET.head, target_token_ids(setting.config, setting.weights["d2t"])))
    assert torch.equal(found["rows of the target's head"], true)
    sound = map_setting(noisy, true - torch.arange(20))
    assert head_rows(sound, TARGET.head, true) == "its rows are those that the map says"
    other = map_setting(torch.randn(20, 24, generator=GENERATOR), true - torch.arange(20))
    assert head_rows(other, TARGET.head, true) == "its rows are no copies of the target's"


def test_rows_that_the_target_holds_twice_stay_where_they_are():
    head = TARGET.head.clone()
    head[7] = head[9]
    ids = torch.arange(20)
    ids[0], ids[5] = 25, 21
    ids[9] = 9
    setting = map_setting(head[torch.arange(20)], ids - torch.arange(20))
    found = head_rows(setting, head, ids)
    assert isinstance(found, torch.Tensor)
    assert found.tolist() == list(range(20))


def test_other_readings_of_d2t():
    ids = torch.tensor([*range(0, 38, 2), 1])
    found = listed(
        tiny.CONFIG, d2t=ids - torch.arange(20), t2d=torch.zeros(60, dtype=torch.bool).index_fill_(0, ids, True)
    )
    assert (
        found["vocab_map", "what t2d marks"].weights["d2t"].tolist() == (ids.sort().values - torch.arange(20)).tolist()
    )
    assert found["vocab_map", "the same ids, ascending"].ruled_out == "the same ids"
    assert found["vocab_map", "placeholder (the first ids)"].changes == {"vocab_map": "none"}
    assert "leave" in found["vocab_map", "index"].ruled_out


def test_a_flag_that_overrides_the_config_has_the_config_as_alternative():
    config = tiny.CONFIG.replace("user", "--rope-theta", **{"rope.theta": 20000.0})
    found = listed(config, dataclasses.replace(TARGET, written_theta=70000.0))
    assert found["rope.theta", "70000 (as the config says)"].changes == {"rope.theta": 70000.0}
    assert ("rope.theta", "500000 (the target's)") in found


@pytest.mark.parametrize(
    "changes",
    [{"learned_sinks": True}, {"logit_scale": 0.5}, {"rope": Rope(partial=0.5)}, {"state_norm": True}],
    ids=lambda changes: next(iter(changes)),
)
def test_what_only_some_drafters_have_is_tried_without(changes):
    found = {
        switch for (switch, _), h in listed(dataclasses.replace(tiny.CONFIG, **changes)).items() if not h.ruled_out
    }
    assert {"rope.partial" if name == "rope" else name for name in changes} <= found
