"""The page on cost says what the programs in benchmarks/ measured, and nothing of the machine."""

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


def test_what_it_withstands_is_what_was_tried(costs: ModuleType) -> None:
    page = costs.cost_page()
    section = page[page.index("## What it withstands") :]
    fuzz, soak = (
        json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text()) for name in ("fuzz", "soak")
    )
    assert fuzz["inputs"] >= 10_000
    assert soak["prompts"] >= 1_000
    for name, about in costs.READERS.items():
        read, refused = (
            sum(count for kind, count in fuzz["by_kind"].items() if (kind.split(" / ")[::2]) == [name, outcome])
            for outcome in ("read", "refused")
        )
        assert f"| {about} | {read:,} | {refused:,} |" in section
        assert read + refused == fuzz["by_reader"][name]
    assert "Faults: 0." in section
    assert fuzz["problems"] == soak["problems"] == []
    assert f"killed with SIGKILL {soak['kills']} times" in section
    assert soak["kills"] > 20
    assert "are, bit for bit, those of a run that was left alone" in section
