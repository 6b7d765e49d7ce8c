"""What is read of the free mappings of `run.json` has its type; whatever else is in them stays."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from driftscope.audit.told import audit_note, audit_warnings
from driftscope.errors import RunError
from driftscope.findings.model import Finding
from driftscope.runs.run import Run
from tests.fake_run import Fake, write_fake_run


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return write_fake_run(tmp_path / "run", Fake(prompts=1, anchors=4, depth=2))


def rewrite(run: Run, change: Callable[[dict[str, Any]], Any]) -> Path:
    facts = json.loads((run.folder / "run.json").read_text())
    change(facts)
    (run.folder / "run.json").write_text(json.dumps(facts))
    return run.folder


FINDING = {"code": "DS201", "title": "Carry", "statement": "otherwise than trained"}
WRONG: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "a width of text": (lambda f: f["checkpoint"]["switches"].update(hidden_size="64"), "switches.hidden_size: .* valid integer"),
    "boundaries": (lambda f: f["checkpoint"]["switches"].update(aux_boundaries=[2, -1]), r"aux_boundaries.1: .* greater than"),
    "positions": (lambda f: f["checkpoint"]["switches"].update({"rope.max_position": 0}), r"rope.max_position: .* greater than 0"),
    "an origin": (lambda f: f["checkpoint"]["origins"].update(carry={"source": 3}), "origins.carry.source: .* valid string"),
    "a depth": (lambda f: f["settings"].update(depth=2.5), "settings.depth: .* valid integer"),
    "a capture": (lambda f: f["settings"].update(capture={"greedy": "yes"}), "settings.capture.greedy: .* valid boolean"),
    "counts": (lambda f: f["provenance"].update(skipped_prompts={"long": 1e400}), "skipped_prompts.long: .* valid integer"),
    "a code": (lambda f: f.update(findings=[FINDING | {"code": "XX"}]), "findings.0.code: .* match pattern"),
    "evidence": (lambda f: f.update(findings=[FINDING | {"evidence": [{"name": "a"}]}]), "evidence.0.value: Field required"),
    "an audit": (lambda f: f.update(audit={"decided": True, "hypotheses": [{}]}), "audit.hypotheses.0.status: Field required"),
    "a sink": (lambda f: f["target"].update(sinks=[-1]), "target.sinks.0: .* greater than"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_value_of_another_type_is_named(run: Run, name: str) -> None:
    change, reason = WRONG[name]
    with pytest.raises(RunError, match=rf"run.json: \S*{reason}") as caught:
        Run.open(rewrite(run, change))
    assert "\n" not in str(caught.value)


def test_other_keys_stay_as_they_are(run: Run) -> None:
    def change(facts: dict[str, Any]) -> None:
        facts["checkpoint"]["switches"] |= {"of another version": [1], "carry": "pre"}
        facts["settings"]["of another version"] = {"a": None}
        facts["audit"] = {"decided": False, "of another version": 1}
        facts["findings"] = [FINDING | {"evidence": [{"name": "a", "value": None}], "of another version": 2}]

    info = Run.open(rewrite(run, change)).info
    assert info.checkpoint.switches["of another version"] == [1]
    assert info.settings["of another version"] == {"a": None}
    assert Finding.from_dict(info.findings[0]).evidence[0].value != 0
    assert audit_warnings(info.audit) == ()
    assert audit_note(info.audit) == "short audit: cannot tell, and the run does not say why"
