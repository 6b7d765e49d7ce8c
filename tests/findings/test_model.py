"""Findings in and out of run.json, exit codes, golden JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from driftscope.findings import DEFAULTS, Assessment, Finding, NotMeasured, assess, evaluate, exit_code, save
from driftscope.findings.registry import rules
from driftscope.runs.run import Run
from tests.drafters import HEALTHY, write_drafter

GOLDEN = Path(__file__).parent / "golden.json"
DRIFT = Finding("DS101", "Norm growth", "It grows.", step=2)
CHECKPOINT = Finding("DS201", "Wrong carry", "Read otherwise.")
NOTE = Finding("DS303", "Few prompts", "Few.")


@pytest.mark.parametrize(
    ("findings", "judged", "code"),
    [
        ([], True, 0),
        ([], False, 2),
        ([NOTE], True, 0),
        ([NOTE], False, 2),
        ([DRIFT], True, 1),
        ([CHECKPOINT], False, 1),
    ],
)
def test_exit_codes(findings: list[Finding], judged: bool, code: int) -> None:
    assessment = Assessment(tuple(findings), (NotMeasured("DS104", "not run"),), (), judged)
    assert assessment.exit_code == code
    assert exit_code(findings) == exit_code([finding.to_dict() for finding in findings]) == int(code == 1)


def test_a_run_keeps_its_findings_and_those_of_an_audit(tmp_path: Path) -> None:
    run = write_drafter(tmp_path / "a", HEALTHY.changed(growth=1.2))
    run.update(findings=[CHECKPOINT.to_dict(), NOTE.to_dict()])
    result = assess(run, DEFAULTS, resamples=200)
    save(run, result)
    stored = [Finding.from_dict(part) for part in Run.open(run.folder).info.findings]
    assert stored == list(result.findings)
    assert [finding.code for finding in stored] == ["DS101", "DS201"]


def test_evaluate_gives_the_findings(tmp_path: Path) -> None:
    run = write_drafter(tmp_path / "a", HEALTHY.changed(growth=1.2))
    assert evaluate(run, DEFAULTS) == list(assess(run, DEFAULTS).findings)


def test_the_depth_bounds_what_is_found(tmp_path: Path) -> None:
    run = write_drafter(tmp_path / "a", HEALTHY.changed(growth=1.2))
    (finding,) = assess(run, DEFAULTS, depth=3, resamples=200).findings
    assert finding.evidence[0].name == "growth at step 3"
    assert finding.evidence[0].value == pytest.approx(1.44, rel=0.01)


def test_golden_json(tmp_path: Path) -> None:
    """The keys and sentences that machines and people rely on; figures within 5%."""
    run = write_drafter(tmp_path / "a", HEALTHY.changed(growth=1.2, self_shift=0.3, prompts=13))
    content = json.loads(json.dumps(assess(run, DEFAULTS, resamples=200).to_dict()))
    golden = json.loads(GOLDEN.read_text(encoding="utf-8"))
    # A rule that is new is clear or could not be asked: neither touches the file.
    told = {part["code"] for part in golden["not_measured"]}
    unmeasured = [part for part in content["not_measured"] if part["code"] in told]
    clear = content.pop("clear")
    assert like({**content, "not_measured": unmeasured}, golden), json.dumps(content, indent=1)
    assert {"DS103", "DS105", "DS108", *(f"DS30{number}" for number in range(1, 7))} <= set(clear)
    asked = {part["code"] for part in (*content["not_measured"], *content["findings"])} | set(clear)
    assert asked == set(rules())


def like(seen: Any, expected: Any) -> bool:
    """Equal, but for figures, and for digits in sentences."""
    if isinstance(expected, dict):
        return list(seen) == list(expected) and all(like(seen[key], value) for key, value in expected.items())
    if isinstance(expected, list):
        return len(seen) == len(expected) and all(like(*pair) for pair in zip(seen, expected, strict=True))
    if isinstance(expected, float):
        return bool(seen == pytest.approx(expected, rel=0.05, abs=0.01))
    if isinstance(expected, str):
        return [word for word in seen.split() if word.isalpha()] == [w for w in expected.split() if w.isalpha()]
    return bool(seen == expected)
