"""The results that the page on cost is made of, and the page made of results whose sentences are written out here."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
RESULTS = sorted((ROOT / "benchmarks" / "results").glob("*.json"))


@pytest.fixture(scope="module")
def costs() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_costs", ROOT / "docs" / "costs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("file", RESULTS, ids=lambda file: file.stem)
def test_a_result_names_no_folder_of_a_machine(file: Path) -> None:
    assert re.findall(r"\"/[a-z]+/[^\"]*|\"[A-Z]:[^\"]*", file.read_text(encoding="utf-8")) == []


def test_the_committed_results_withstood_everything_and_enough_of_it() -> None:
    """What README and docs say of hostile files and killed runs rests on these."""
    fuzz, soak = (
        json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text()) for name in ("fuzz", "soak")
    )
    assert fuzz["inputs"] >= 10_000
    assert sum(fuzz["by_reader"].values()) == sum(fuzz["by_kind"].values()) == fuzz["inputs"]
    assert soak["prompts"] >= 1_000
    assert soak["kills"] == sum(soak["killed_while"].values()) > 20
    assert fuzz["problems"] == soak["problems"] == []


FUZZ = {
    "inputs": 1204,
    "by_kind": {
        "run / spoilt / read": 3,
        "run / spoilt / refused": 1000,
        "run / hostile / refused": 200,
        "dump / hostile / read": 1,
    },
    "problems": ["a reader crashed"],
    "largest_share_of_allowed_memory": {"value": 0.256, "kind": "run / spoilt"},
    "longest_cpu_seconds": {"value": 2.04, "kind": "dump / hostile"},
}
SOAK = {
    "prompts": 1500, "kills": 3, "killed_while": {"starting": 1, "probing": 2}, "rows": {"anchors": 2000, "heads": 30},
    "captures": 1499, "problems": [],
}  # fmt: skip


def page_of(costs: ModuleType, monkeypatch: pytest.MonkeyPatch, folder: Path, **results: object) -> str:
    for name, found in results.items():
        (folder / f"{name}.json").write_text(json.dumps(found))
    monkeypatch.setattr(costs, "RESULTS", folder)
    page: str = costs.cost_page()
    return page


def test_what_it_withstands_is_told_in_its_numbers(
    costs: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    page = page_of(costs, monkeypatch, tmp_path, fuzz=FUZZ, soak=SOAK)
    assert "hands the readers 1,204 files that lie" in page
    assert "| a run, and `show` | 3 | 1,200 |" in page
    assert "| an engine's dump for `--from` | 1 | 0 |" in page
    assert "a drafter's checkpoint |" not in page
    assert "Faults: 1. The most memory, 26% of what is allowed, was asked by a run, and `show` (spoilt)" in page
    assert "2.0 CPU s, by an engine's dump for `--from` (hostile)" in page
    assert (
        "probes 1,500 prompts with a tiny pair, killed with SIGKILL 3 times (1 while starting, 2 while probing)" in page
    )
    assert "its 2,030 rows and 1,499 captures are, bit for bit, those of a run that was left alone" in page


def test_a_run_that_came_out_otherwise_is_told_as_such_and_what_was_not_measured_is_not_there(
    costs: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    page = page_of(costs, monkeypatch, tmp_path, soak=SOAK | {"problems": ["rows differ"]})
    assert "1,499 captures are not those of a run that was left alone" in page
    assert "What it withstands" not in page


def test_the_page_is_made_of_the_committed_results(costs: ModuleType) -> None:
    """A result of an older form must not keep the pages from being built."""
    page = costs.cost_page()
    held = {file.stem for file in RESULTS}
    headings = {
        "chain": "Against a loop",
        "growth": "How it grows",
        "drift_cost": "The probe cost",
        "fuzz": "withstands",
    }
    for name in headings.keys() & held:
        assert headings[name] in page, name
