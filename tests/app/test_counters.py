"""What an engine counted, on the page about acceptance."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from driftscope.serving.diagnosis import Traffic, diagnose
from driftscope.serving.report import content
from tests.app.conftest import drawn, messages, words
from tests.serving.planted import WRONG_CARRY, counters, readings, walks

Start = Callable[..., AppTest]


def test_engine_walk_and_reading_are_drawn(app: Start, library: Path, tmp_path: Path) -> None:
    shutil.copytree(library / "steady", tmp_path / "steady")
    found = diagnose(counters(walks(WRONG_CARRY, prompts=96, seed=50)), readings(), Traffic(alike=True))
    told = content(found)
    (tmp_path / "steady" / "engine.json").write_text(json.dumps(told))
    test = app(tmp_path, page="acceptance")
    assert not test.exception
    assert [message for message in messages(test) if "accepts less than the walk" in message]
    assert "carry as pre" in words(test)
    rows = drawn(test)
    rows = rows[rows["run"].isin(["engine", "walk", "carry: pre"])]
    assert set(rows["run"]) == {"engine", "walk", "carry: pre"}
    engine = rows[rows["run"] == "engine"].sort_values("step")["mean"]
    assert engine.tolist() == pytest.approx(told["engine"]["shares"])


def test_without_a_comparison_the_page_says_how_to_make_one(app: Start, library: Path, tmp_path: Path) -> None:
    shutil.copytree(library / "steady", tmp_path / "steady")
    (tmp_path / "steady" / "engine.json").write_text('{"headline": 1}')
    test = app(tmp_path, page="acceptance")
    assert not test.exception
    assert "No engine was compared with this run" in words(test)
    assert "driftscope engine" in str([part.value for part in test.code])
