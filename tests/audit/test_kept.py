"""The short audit as part of a probe: kept in the run, told on top, never in the way."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console
from typer.testing import CliRunner

from benchmarks.twins import broken
from driftscope import api
from driftscope.audit import short_in_run as kept
from driftscope.chain.pair import load_pair
from driftscope.checkpoints import save_checkpoint
from driftscope.cli import app
from driftscope.commands.content import run_content
from driftscope.findings import assess
from driftscope.probes import chosen
from driftscope.runs.run import Run
from driftscope.show.terminal import render_run
from tests.audit import pair as planted

SMALL = {"max_new_tokens": 36, "depth": 2, "horizon": 8, "anchors": 4, "sink": "none"}


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """Folders of a sound drafter and a twin with the wrong carry, prompts, and the twin's run."""
    root = tmp_path_factory.mktemp("kept")
    target = planted.planted_target()
    config, weights = planted.planted_config("eagle3.1"), planted.planted_weights("eagle3.1")
    save_checkpoint(root / "sound", config, weights, "specforge")
    twin = broken(("carry",), config, weights, target.head_weight)
    save_checkpoint(root / "twin", *twin, "specforge")
    lines = [{"id": p.id, "text": " ".join(f"w{i}" for i in p.token_ids)} for p in planted.prompts()]
    (root / "prompts.jsonl").write_text("\n".join(json.dumps(line) for line in lines))
    measured(root, "twin", probes=chosen("norms"))
    return root


def measured(root, drafter, out=None, probes=(), **options):
    pair = load_pair(root / drafter, planted.planted_target())
    options = {"prompts": root / "prompts.jsonl", "cache_dir": root / "cache", **SMALL, **options}
    return api.probe_pair(pair, out=root / "runs" / (out or drafter), probes=probes, **options)


def printed(run):
    console = Console(file=io.StringIO(), width=200)
    render_run(run, console)
    return console.file.getvalue()


def test_what_is_run_otherwise_than_trained_is_on_top_and_among_the_findings(places):
    run = Run.open(places / "runs" / "twin")
    assert run.info.audit["decided"]
    (warning,) = run.info.audit["warnings"]
    assert printed(run).strip().startswith("warning")
    assert warning in " ".join(printed(run).split())
    assessment = assess(run)
    (finding,) = [part for part in assessment.findings if part.kind == "checkpoint"]
    assert finding.code == "DS201"
    assert finding.advice[0] == "run it with --carry post"
    assert assessment.exit_code == 1
    content = json.loads(json.dumps(run_content(run, assessment, None)))
    assert content["audit"]["warnings"] == [warning]
    assert {row["status"] for row in content["audit"]["hypotheses"]} >= {"better", "worse"}


def test_a_run_that_goes_on_is_not_audited_again(places, monkeypatch):
    before = Run.open(places / "runs" / "twin").info
    monkeypatch.setattr(kept, "short_audit", lambda *_: pytest.fail("audited again"))
    assert measured(places, "twin", probes=chosen("norms"), resume=True).info == before


def test_a_sound_drafter_gets_a_note_and_no_finding(places):
    run = measured(places, "sound")
    assert run.info.audit["warnings"] == []
    assert run.info.findings == []
    assert "other settings fits better" in printed(run)
    assert "`driftscope audit` tries every switch" in printed(run)


def test_without_an_audit_nothing_is_said(places):
    run = measured(places, "sound", "unaudited", audit=False)
    assert run.info.audit is None
    assert "audit" not in run_content(run, assess(run), None)
    assert "short audit" not in printed(run)


def test_too_few_prompts_are_told_and_no_failure(places):
    few = places / "few.jsonl"
    few.write_text("\n".join((places / "prompts.jsonl").read_text().splitlines()[:3]))
    run = measured(places, "twin", "few", prompts=few)
    assert run.info.audit["decided"] is False
    assert "cannot tell, 3 usable prompts are too few" in printed(run)
    assert run.info.findings == []


def test_an_audit_that_breaks_does_not_take_the_probe_with_it(places, monkeypatch):
    def broken_audit(*_):
        raise RuntimeError("no memory\nmore lines")

    monkeypatch.setattr(kept, "short_audit", broken_audit)
    run = measured(places, "sound", "broken")
    assert run.info.audit["reason"] == "it failed (no memory)"
    assert "cannot tell, it failed (no memory)" in printed(run)


def test_the_command_has_an_off_switch(monkeypatch, tmp_path):
    asked = []

    def measure_request(request, progress):
        asked.append(request.audit)
        raise RuntimeError("asked")

    monkeypatch.setattr(api, "measure_request", measure_request)
    monkeypatch.chdir(tmp_path)
    CliRunner().invoke(app, ["probe", "x", "--no-audit"])
    CliRunner().invoke(app, ["probe", "x"])
    assert asked == [False, True]
