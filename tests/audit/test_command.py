"""`driftscope audit` from the command line to the exit code."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console
from typer.testing import CliRunner

from benchmarks.twins import broken
from driftscope.audit import audit_captures
from driftscope.audit.decide import Limits
from driftscope.audit.view import render_audit
from driftscope.chain.pair import load_pair
from driftscope.checkpoints import save_checkpoint
from driftscope.cli import app
from tests.audit import pair as planted


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """Folders of the target and of a twin, and a file of prompts."""
    root = tmp_path_factory.mktemp("pair")
    target = planted.planted_target()
    target.model.save_pretrained(root / "target")
    target.tokenizer.save_pretrained(root / "target")
    config, weights = planted.planted_config("eagle3.1"), planted.planted_weights("eagle3.1")
    save_checkpoint(root / "sound", config, weights, "specforge")
    twin = broken(("carry",), config, weights, target.head_weight)
    save_checkpoint(root / "twin", *twin, "specforge")
    lines = [{"id": p.id, "text": " ".join(f"w{i}" for i in p.token_ids)} for p in planted.prompts()]
    (root / "prompts.jsonl").write_text("\n".join(json.dumps(line) for line in lines))
    return root


def invoke(places, drafter, *words):
    common = ["--target", str(places / "target"), "--prompts", str(places / "prompts.jsonl")]
    common += ["--max-new-tokens", "36", "--cache-dir", str(places / "cache"), "--dtype", "float32", "--device", "cpu"]
    return CliRunner().invoke(app, ["audit", str(places / drafter), *common, *words], catch_exceptions=False)


def test_a_fault_is_named_fixed_and_gone(places, tmp_path):
    done = invoke(places, "twin", "--json", "--fix", str(tmp_path / "fixed"))
    assert done.exit_code == 1
    content = json.loads(done.stdout)
    assert content["outcome"] == "misconfigured"
    assert [finding["code"] for finding in content["findings"]] == ["DS201"]
    assert content["fix"]["config"]["norm_output"] == [False, True]
    assert content["fix"]["left"] == []
    again = invoke(places, str(tmp_path / "fixed"))
    assert again.exit_code == 0, again.output
    assert "No alternative is better than the declared setting" in " ".join(again.output.split())


def test_a_flag_that_mends_it_makes_the_audit_hold(places):
    done = invoke(places, "twin", "--carry", "post", "--json", "--count", "17")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["prompts"] >= 16


def test_too_few_prompts_exit_two(places):
    done = invoke(places, "sound", "--count", "5", "--json")
    assert done.exit_code == 2
    assert json.loads(done.stdout)["outcome"] == "cannot tell"


@pytest.mark.parametrize("width", [70, 130])
def test_the_screen_says_what_to_do(places, width):
    pair = load_pair(places / "twin", planted.planted_target())
    found = audit_captures(pair, planted.captures(), limits=Limits(flips=499))
    console = Console(file=io.StringIO(), width=width)
    render_audit(found, console, every=True)
    text = " ".join(console.file.getvalue().split())
    for words in ("DS201", "run it with --carry post", '"norm_output": true', "vLLM:", "shuffled features", "greedy"):
        assert words.replace('"norm_output": true', "norm_output = true") in text
