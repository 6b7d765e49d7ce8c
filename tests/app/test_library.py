"""Which runs the app finds, and what it says of the rest."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from driftscope.app.library import PATHS, find_runs, given_paths, signature


def test_runs_are_found_under_folders_newest_first_with_short_names(library: Path, tmp_path: Path) -> None:
    for name, age in (("a/run", 10), ("b/run", 5), ("c", 1)):
        shutil.copytree(library / "steady", tmp_path / name)
        os.utime(tmp_path / name / "run.json", (1e9 - age, 1e9 - age))
    (tmp_path / ".hidden").mkdir()
    shutil.copy(library / "steady" / "run.json", tmp_path / ".hidden" / "run.json")
    found = find_runs([tmp_path, tmp_path / "c"])
    assert [entry.id for entry in found] == ["c", "b/run", "a/run"]
    assert all(entry.info is not None and not entry.problem for entry in found)
    assert found[0].checkpoint == "post"


def test_what_is_no_run_says_why(odd: Path) -> None:
    problems = {entry.id: entry.problem for entry in find_runs([odd])}
    assert not problems["empty"]
    assert not problems["partial"]
    assert "schema version 0" in problems["old-schema"]
    assert "not the run.json" in problems["torn"]
    assert "not the run.json" in problems["foreign"]


def test_a_path_without_runs_is_named(tmp_path: Path) -> None:
    (none, gone) = find_runs([tmp_path, tmp_path / "gone"])
    assert none.info is None
    assert "holds no run" in none.problem
    assert "no such folder" in gone.problem


def test_a_record_is_read_again_when_it_changes(library: Path, tmp_path: Path) -> None:
    run = shutil.copytree(library / "steady", tmp_path / "run")
    (before,) = find_runs([run])
    record = json.loads((run / "run.json").read_text())
    record["target"]["name"] = "another/target"
    (run / "run.json").write_text(json.dumps(record))
    (after,) = find_runs([run])
    assert before.info is not None
    assert after.info is not None
    assert (before.info.target.name, after.info.target.name) == ("fake/target", "another/target")


def test_the_signature_changes_with_shards_only(library: Path, tmp_path: Path) -> None:
    run = shutil.copytree(library / "steady", tmp_path / "run")
    before = signature(run)
    (run / ".run.lock").touch()
    (run / "shards" / "clean" / ".new-half").mkdir()
    assert signature(run) == before
    (run / "shards" / "pin" / "chat-00").mkdir(parents=True)
    assert signature(run) != before


def test_without_arguments_it_is_the_folder_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PATHS, raising=False)
    assert given_paths() == [Path("runs")]
    assert find_runs([Path("runs-that-are-not-there")])[0].problem
    monkeypatch.setenv(PATHS, json.dumps(["~/x"]))
    assert given_paths() == [Path("~/x").expanduser()]
