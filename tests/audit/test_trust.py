"""No clean bill for a drafter that knows nothing, and no blame on it for texts that are garbage."""

from __future__ import annotations

import dataclasses
import json

import pytest
import torch
from typer.testing import CliRunner

from driftscope import api
from driftscope.asserts import (
    assert_acceptance,
    assert_no_attention_drift,
    assert_no_findings,
    assert_norm_growth,
    assert_not_worse,
)
from driftscope.audit.controls import scrambled
from driftscope.audit.positive import positive_control
from driftscope.audit.texts import judge_texts
from driftscope.audit.trusting import no_better
from driftscope.captures.capture import capture
from driftscope.chain.pair import load_pair
from driftscope.checkpoints import open_state_dict, save_checkpoint
from driftscope.cli import app
from driftscope.errors import RunError
from driftscope.findings import assess
from driftscope.findings.verdict import verdict
from driftscope.probes import chosen
from driftscope.runs.run import Run
from driftscope.target.model import wrap_target
from tests import tiny
from tests.audit import pair as planted
from tests.tiny_target import TinyPrompt

SMALL = {"max_new_tokens": 36, "depth": 2, "horizon": 8, "anchors": 4, "sink": "none"}
CONFIG = planted.planted_config("eagle3.1")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Runs of a sound drafter and of one whose matrices are permuted, with and without an audit."""
    root = tmp_path_factory.mktemp("trust")
    weights = planted.planted_weights("eagle3.1")
    lines = [{"id": p.id, "text": " ".join(f"w{i}" for i in p.token_ids)} for p in planted.prompts()]
    (root / "prompts.jsonl").write_text("\n".join(json.dumps(line) for line in lines))
    for name, held in (("sound", weights), ("permuted", scrambled(weights))):
        save_checkpoint(root / name, CONFIG, held, "specforge")
    probed(root, "sound", "sound", audit=False)
    probed(root, "permuted", "permuted")
    probed(root, "permuted", "permuted-unaudited", audit=False)
    return root


def probed(root, name, out, target=None, **options):
    options = {"prompts": root / "prompts.jsonl", "cache_dir": root / "cache", **SMALL, **options}
    pair = load_pair(root / name, target or planted.planted_target())
    return api.probe_pair(pair, out=root / "runs" / out, probes=chosen("norms,attention,acceptance"), **options)


@pytest.mark.parametrize("name", ["permuted", "permuted-unaudited"])
def test_a_drafter_that_knows_nothing_has_no_verdict(runs, name):
    run = Run.open(runs / "runs" / name)
    assessment = assess(run)
    assert (assessment.exit_code, assessment.wrong, assessment.judged) == (2, (), False)
    found = verdict(run.summary())
    assert found.kind == "unknown"
    assert found.headline.startswith(
        "No verdict: the drafter predicts no better than its controls: at step 1 it agrees"
    )
    assert "its weights are as good as random ones" in found.headline


def test_a_sound_drafter_beats_its_controls(runs):
    run = Run.open(runs / "runs" / "sound")
    held = run.info.trust["control"]
    assert held["reason"] == ""
    assert held["lost"] == []
    assert held["agreement"] > 0.1 + max(control["agreement"] for control in held["controls"])
    assert assess(run).withheld == ""
    assert run.info.trust["texts"]["reason"] == ""


def test_assertions_fail_for_what_knows_nothing_and_a_baseline_of_it_is_refused(runs):
    run, sound = (Run.open(runs / "runs" / name) for name in ("permuted", "sound"))
    for check in (
        lambda: assert_norm_growth(run, 99.0, step=2),
        lambda: assert_no_attention_drift(run, max_displacement=0.99, max_self_excess=0.99),
        lambda: assert_no_findings(run),
        lambda: assert_acceptance(run, min_anchor_mean=0.0),
        lambda: assert_not_worse(run, sound),
    ):
        with pytest.raises(AssertionError, match=r"nothing can be asserted of run .*no better than its controls"):
            check()
    with pytest.raises(RunError, match=r"baseline .* is none to compare with: the drafter predicts no better"):
        assert_not_worse(sound, run)


def test_show_ends_with_the_reason_and_exit_code_2_holds_on_resume(runs):
    shown = CliRunner().invoke(app, ["show", str(runs / "runs" / "permuted")])
    assert "No verdict: the drafter predicts no better than its controls" in " ".join(shown.output.split())
    before = Run.open(runs / "runs" / "permuted").info
    assert probed(runs, "permuted", "permuted", resume=True).info.trust == before.trust
    content = json.loads(CliRunner().invoke(app, ["show", str(runs / "runs" / "permuted"), "--json"]).output)
    assert content["exit_code"] == 2
    assert content["trust"]["control"]["lost"] == ["shuffled features", "shuffled tokens", "random drafter"]


def test_a_drafter_that_reads_other_features_ignores_them(runs):
    """fc of noise: what is left is what the tokens tell."""
    weights = planted.planted_weights("eagle3.1")
    torch.manual_seed(0)
    weights["fc.weight"] = torch.randn_like(weights["fc.weight"]) * weights["fc.weight"].std()
    pair = load_pair(open_state_dict(weights, _config(runs)), planted.planted_target())
    found = positive_control(pair, planted.captures())
    assert "shuffled features" in found.lost


def test_a_random_block_head_knows_nothing(tmp_path):
    config = dataclasses.replace(
        CONFIG, fc_norm=False, layer_form="dflash", carry="none", mask_token_id=5, block_size=4, num_layers=2, qk_norm=True,
        embedding="target", head="target", draft_vocab_size=planted.VOCAB, vocab_map="none",
    )  # fmt: skip
    held = {
        name: tensor
        for name, tensor in tiny.weights(config).items()
        if name not in ("embed_tokens.weight", "lm_head.weight")
    }
    save_checkpoint(tmp_path / "block", config, held, "speculators-dflash")
    found = positive_control(load_pair(tmp_path / "block", planted.planted_target()), planted.captures())
    assert "random drafter" in found.lost
    assert "predicts no better than its controls" in no_better(found)


def _config(root):
    return json.loads((root / "sound" / "config.json").read_text())


def test_too_few_prompts_are_no_proof():
    pair = load_pair(open_state_dict(*_state()), planted.planted_target())
    assert positive_control(pair, planted.captures()[:11]) is None
    assert positive_control(pair, planted.captures()[:12]) is not None
    assert judge_texts(pair.target, planted.captures()[:11]) is None


def _state():
    weights = planted.planted_weights("eagle3.1")
    config = {
        "architectures": ["LlamaForCausalLMEagle3"], "head_dim": 8, "rope_theta": 1000.0, "fc_norm": True,
        "norm_output": True, "eagle_aux_hidden_state_layer_ids": list(planted.BOUNDARIES), "vocab_size": planted.VOCAB,
    }  # fmt: skip
    return weights, config


def gibberish(seed=0):
    """The planted target with 1 added to every norm weight."""
    model = planted.target_model()
    model.load_state_dict(planted._part("target"))
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" in name:
                weight.add_(3.0)
            elif "proj" in name:
                weight.copy_(weight.flatten()[torch.randperm(weight.numel())].view_as(weight))
    return wrap_target(model, planted.tokenizer(), name="broken")


def random_prompts(count=20):
    generator = torch.Generator().manual_seed(5)
    return [
        TinyPrompt(f"r{i}", tuple(torch.randint(0, planted.VOCAB, (12,), generator=generator).tolist()))
        for i in range(count)
    ]


def test_a_target_that_does_not_know_its_prompts_is_told():
    found = judge_texts(gibberish(), capture(gibberish(), planted.prompts(), max_new_tokens=20, boundaries=()))
    assert found.prompt_gain < 1.0
    assert "predicts the prompts no better than their tokens in another order" in found.reason


def test_prompts_that_are_no_text_are_told():
    target = planted.planted_target()
    found = judge_texts(target, capture(target, random_prompts(), max_new_tokens=20, boundaries=()))
    assert found.prompt_gain < 1.0
    assert "predicts the prompts no better" in found.reason


def test_sound_texts_are_not_withheld():
    found = judge_texts(planted.planted_target(), planted.captures())
    assert found.reason == ""
    assert found.prompt_gain > 1.0


def test_a_garbage_target_gives_no_verdict_no_audit_and_no_advice(runs):
    run = probed(runs, "sound", "garbage", gibberish())
    assert run.info.audit is None
    assert run.info.findings == []
    assert assess(run).exit_code == 2
    assert "No verdict: target broken predicts the prompts" in verdict(run.summary()).headline
