"""The audit on a pair that really drafts: planted faults are named first, sound drafters stay silent."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch

from benchmarks.twins import BY_NAME, PAIRS, TWINS, broken, fits, mended, shown, weak
from driftscope.audit import audit_captures, short_audit, short_boundaries
from driftscope.audit.decide import Limits
from driftscope.audit.setting import Setting
from driftscope.captures.capture import capture
from driftscope.chain.pair import Pair
from driftscope.checkpoints.checkpoint import Checkpoint
from driftscope.drafter import build_drafter
from tests.audit import pair as planted

LIMITS = Limits(flips=1999)


def make(config, weights, target=None, raw=None) -> Pair:
    """A pair around tensors in memory."""
    target = target or planted.planted_target()
    drafter = build_drafter(config, weights, target_embedding=target.embedding_weight, target_head=target.head_weight)
    names = {name: name for name in weights}
    checkpoint = Checkpoint("twin", "", "specforge", "", config, weights, None, raw or {}, (), names, (), ())
    return Pair(checkpoint, config, target, drafter)


def run(config, weights, raw=None, **options):
    options = {"recapture": planted.captures, "limits": LIMITS} | options
    return audit_captures(make(config, weights, raw=raw), planted.captures(), **options)


def head():
    return planted.planted_target().head_weight


USUAL = (
    "carry",
    "aux +1",
    "d2t of another run",
    "rope layout",
    "fc_norm left out",
    "random embedding",
    "position",
    "draft rows",
    "state first",
    "token lag",
)
CHEAP = {"double norm": "double_norm", "chain +1": "chain_position"}
"""Faults that cost this small drafter less than the audit acts on, and the switches that they are."""
SOUND = ("eagle3", "eagle3.1", "one-step")


def cases():
    """One twin of each class, the others where there is time."""
    found = []
    for twin in TWINS:
        if twin.name in CHEAP:
            continue
        variant = "eagle3.1" if twin.needs.get("fc_norm") or twin.name in ("position", "draft rows") else "eagle3"
        assert fits(twin, planted.planted_config(variant))
        marks = [] if twin.name in USUAL else [pytest.mark.slow]
        found.append(pytest.param(variant, twin, id=twin.name, marks=marks))
    return found


@pytest.mark.parametrize(("variant", "twin"), cases())
def test_the_planted_fault_is_named_first(variant, twin):
    config, weights = planted.planted_config(variant), planted.planted_weights(variant)
    made, lens = broken((twin.name,), config, weights, head()), shown((twin.name,))
    # A flag that overrides the config leaves the right rope base in it; no target and no trainer has it.
    raw = {"rope_theta": config.rope.theta} if twin.name == "rope theta" else None
    found = run(*made, raw=raw, limits=replace(LIMITS, rounds=1), lens=lens)
    assert found.outcome == "misconfigured", found.verdict
    first = found.faults[0]
    assert (first.finding.code, first.switch) == (twin.code, twin.switch)
    assert first.alternative.startswith(twin.alternative)
    sound = Setting(config, weights)
    assert any(mended(choice.apply(found.declared_setting), sound) for choice in first.choices), first.named
    assert found.exit_code == 1


@pytest.mark.parametrize(("name", "switch"), [pytest.param(*one, marks=pytest.mark.slow) for one in CHEAP.items()])
def test_a_fault_that_costs_too_little_is_told_and_not_acted_on(name, switch):
    made = broken((name,), planted.planted_config("eagle3"), planted.planted_weights("eagle3"), head())
    found = run(*made, limits=replace(LIMITS, rounds=1), lens=shown((name,)))
    assert found.outcome == "holds", found.verdict
    assert "Better beyond chance, by too little to act on: " in found.verdict
    assert switch in found.verdict


@pytest.mark.parametrize("names", PAIRS, ids=" and ".join)
def test_two_faults_at_once_are_both_found(names):
    config, weights = planted.planted_config("eagle3"), planted.planted_weights("eagle3")
    found = run(*broken(names, config, weights, head()))
    codes = [fault.finding.code for fault in found.faults]
    assert set(codes[:2]) == {BY_NAME[name].code for name in names}, found.verdict
    assert [fault.round for fault in found.faults] == list(range(1, len(codes) + 1))


@pytest.mark.parametrize("variant", SOUND)
def test_sound_drafters_stay_silent_also_the_one_that_drifts(variant):
    found = run(planted.planted_config(variant), planted.planted_weights(variant))
    assert found.outcome == "holds", found.verdict
    assert not found.findings
    assert found.exit_code == 0
    assert all(control.beaten for control in found.controls)
    if variant == "one-step":
        assert found.baseline.agreement[3] < 0.5 * found.baseline.agreement[0]
        assert "the drafter itself" in found.verdict


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_a_weak_drafter_is_not_called_misconfigured(share):
    config = planted.planted_config("eagle3.1")
    found = run(config, weak(planted.planted_weights("eagle3.1"), share))
    assert found.outcome != "misconfigured", found.verdict
    assert not found.faults


def test_a_drafter_that_knows_nothing_decides_nothing_but_its_files_still_speak():
    config = planted.planted_config("eagle3")
    weights = weak(planted.planted_weights("eagle3"), 30.0)
    found = run(config, weights)
    assert (found.outcome, found.exit_code) == ("cannot tell", 2)
    config, weights = broken(("d2t of another run",), config, weights, head())
    found = run(config, weights)
    assert found.outcome == "cannot tell"
    assert [finding.code for finding in found.findings] == ["DS203"]
    assert "copies of the target's rows" in found.findings[0].statement
    assert found.exit_code == 1


def test_too_few_prompts_decide_nothing():
    config, weights = planted.planted_config("eagle3"), planted.planted_weights("eagle3")
    few = planted.captures()[:10]
    found = audit_captures(make(*broken(("carry",), config, weights, head())), few, limits=LIMITS)
    assert (found.outcome, found.exit_code) == ("cannot tell", 2)
    assert "10 usable prompts" in found.verdict
    assert not found.faults
    assert {row.status for row in found.rows} <= {"indistinguishable", "ruled out"}


def test_rows_say_what_was_ruled_out_and_what_makes_no_difference():
    found = run(planted.planted_config("eagle3"), planted.planted_weights("eagle3"))
    assert found.row("rms_norm_eps").status == "indistinguishable"
    assert found.row("layer_form").status == "ruled out"
    assert found.row("embedding").reason == "no embed_tokens.weight is stored"
    assert found.row("vocab_map", "rows of").reason == "its rows are those that the map says"
    worse = found.row("aux_boundaries", "3, 5, 6")
    assert worse.status == "worse"
    assert worse.loss_first is not None
    assert worse.loss_first.mean < 0
    assert worse.p_worse < 0.01 < worse.p_better
    assert found.row("carry").signature == "steps 2 on"
    searched = [row for row in found.rows if row.searched]
    assert searched
    assert all(row.prompts < found.prompts for row in searched)


def test_without_further_captures_what_is_missing_is_listed_and_nothing_is_searched():
    config, weights = planted.planted_config("eagle3"), planted.planted_weights("eagle3")
    held = [replace(r, boundaries={b: r.boundaries[b] for b in (2, 4, 5)}) for r in planted.captures()]
    found = audit_captures(make(config, weights), held, limits=LIMITS)
    assert found.row("aux_boundaries", "3, 5, 6").reason == "boundary 3 is not captured"
    assert not any(row.searched for row in found.rows)
    assert found.outcome == "holds"


def test_a_drafter_trained_on_the_state_after_the_final_norm_is_recognised():
    """hidden_states[n] of transformers is normed, boundary n is not; here the norm turns and stretches its features."""
    target, scale = planted.stretched_target()
    config, weights = planted.planted_config("hidden-states"), dict(planted.planted_weights("hidden-states"))
    blocks = list(weights["fc.weight"].chunk(3, 1))
    weights["fc.weight"] = torch.cat([*blocks[:2], blocks[2] / scale], 1)
    records = capture(target, planted.prompts(), max_new_tokens=36, boundaries=range(planted.LAYERS + 1))
    found = audit_captures(make(config, weights, target), records, limits=LIMITS)
    assert [fault.finding.code for fault in found.faults] == ["DS206"], found.verdict
    assert found.faults[0].alternative == "boundary 8 after the final norm"
    assert found.faults[0].advice.inexpressible


def test_features_of_the_position_before_are_recognised():
    config, weights = planted.planted_config("eagle3"), planted.planted_weights("eagle3")

    def late(ids=None, boundaries=()):
        """Features that an engine hands over one position late."""
        return [
            replace(r, boundaries={b: torch.roll(state, -1, 0) for b, state in r.boundaries.items()})
            for r in planted.captures(ids)
        ]

    found = audit_captures(make(config, weights), late(), recapture=late, limits=LIMITS)
    assert found.faults[0].switch == "feature_shift"
    assert found.faults[0].finding.code == "DS208"
    assert found.faults[0].advice.flag is None
    assert "no layout says so" in (found.faults[0].advice.inexpressible or "")


def test_the_report_is_json_with_what_to_do():
    config, weights = planted.planted_config("eagle3"), planted.planted_weights("eagle3")
    found = run(*broken(("carry",), config, weights, head()))
    content = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert content["outcome"] == "misconfigured"
    (fault,) = content["findings"]
    assert fault["code"] == "DS201"
    assert fault["step"] == 2
    assert fault["fix"]["flag"] == "--carry pre"
    assert fault["fix"]["config"]["norm_output"] is False
    assert set(fault["fix"]["engines"]) == {"vLLM", "SGLang", "TensorRT-LLM"}
    assert "agreement at steps 2 to 4 goes from" in fault["statement"]
    assert len(content["controls"]) == 6


def test_the_short_audit_warns_of_the_common_faults_and_of_nothing_else():
    config, weights = planted.planted_config("eagle3"), planted.planted_weights("eagle3")
    sound = make(config, weights)
    assert short_boundaries(sound) == (1, 2, 3, 4, 5, 6)
    told = short_audit(sound, planted.captures(), limits=LIMITS)
    assert (told.warnings, told.decided) == ((), True)
    for name, option in (("carry", "--carry pre"), ("aux +1", "--aux 2,4,5")):
        told = short_audit(make(*broken((name,), config, weights, head())), planted.captures(), limits=LIMITS)
        (warning,) = told.warnings
        assert option in warning
        assert "\n" not in warning
    few = short_audit(make(*broken(("carry",), config, weights, head())), planted.captures()[:8], limits=LIMITS)
    assert (few.warnings, few.decided) == ((), False)
