"""What vLLM served, right and wrong: the answers follow from the counters and walks that are kept, and they are right."""

from __future__ import annotations

import importlib
import json
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
# They are programs: they import each other from their own folder.
sys.path.append(str(ROOT / "benchmarks" / "engine_cases"))
answers = importlib.import_module("answers")
RESULTS = ROOT / "benchmarks" / "results" / "engine_cases.json"
EXACT = "same prompts"


@cache
def result() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8"))
    return found


@cache
def again() -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in answers.again(RESULTS)}


def test_the_answers_are_given_again_from_counters_and_walks() -> None:
    assert len(result()["cases"]) >= 10
    for row in result()["cases"]:
        made = again()[row["name"]]
        assert made["per_position"] == row["per_position"]
        for name, part in row["answers"].items():
            now = made["answers"][name]
            for key in ("outcome", "named", "tied", "position", "exact", "verdict"):
                assert now[key] == part[key], (row["name"], name, key)
            assert now["p"] == pytest.approx(part["p"], rel=1e-6, abs=1e-12)


def parts(kind: str | None = None) -> list[tuple[dict[str, Any], str, dict[str, Any]]]:
    return [
        (row, name, part)
        for row in again().values()
        for name, part in row["answers"].items()
        if kind is None or name == kind
    ]


def test_no_sound_engine_is_accused() -> None:
    sound = [(row["name"], name, part["verdict"]) for row, name, part in parts() if row["change"] == "right"]
    assert len(sound) >= 4
    assert [case for case in sound if case[2] != "right"] == []


def test_a_sound_engine_that_serves_the_run_s_prompts_makes_the_very_rounds() -> None:
    sound = [part for row, _, part in parts(EXACT) if row["change"] == "right"]
    assert sound
    assert all(part["exact"] for part in sound)


def test_nine_of_ten_costly_faults_are_named_by_the_very_prompts() -> None:
    costly = [(row["name"], part) for row, _, part in parts(EXACT) if row["change"] != "right" and row["lost"] >= 0.1]
    assert len(costly) >= 10
    right = [name for name, part in costly if part["verdict"] == "right"]
    assert len(right) >= 0.9 * len(costly), [(name, part["verdict"], part["named"]) for name, part in costly]


def test_no_other_switch_is_ever_named() -> None:
    wrong = [(row["name"], name, part["named"]) for row, name, part in parts() if part["verdict"].startswith("wrong")]
    assert wrong == []
