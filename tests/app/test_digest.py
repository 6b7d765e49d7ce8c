"""The line of a run in the table, and where it is kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from driftscope.app.digest import _file, digest, store, stored
from driftscope.app.figures import parts
from driftscope.runs.run import Run


def test_a_digest_says_what_the_summary_says(library: Path) -> None:
    run = Run.open(library / "drifting")
    found = digest(run, parts([run])[0])
    summary = run.summary()
    assert found["kind"] == "drift"
    assert found["onset"]["norm_up"] == summary["onset"]["norm_up"] == 2
    assert found["served"]["mean"] == summary["acceptance_length"]["served"]["mean"]
    assert "DS101" in found["codes"]
    assert (found["steps"], found["prompts"]) == (4, 13)
    assert json.loads(json.dumps(found)) == found


def test_digests_are_kept_by_signature(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRIFTSCOPE_CACHE", str(tmp_path))
    assert stored("a") is None
    store("a", {"kind": "none"})
    assert stored("a") == {"kind": "none"}
    assert stored("b") is None
    next((tmp_path / "app" / "digests").iterdir()).write_text("{torn")
    assert stored("a") is None


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DRIFTSCOPE_CACHE", str(tmp_path / "file"))
    store("a", {"kind": "none"})
    assert stored("a") is None


def test_a_kept_digest_that_is_nested_too_deeply_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRIFTSCOPE_CACHE", str(tmp_path))
    store("signature", {"verdict": "drift"})
    assert stored("signature") == {"verdict": "drift"}
    _file("signature").write_text('{"verdict": ' + "[" * 100_000 + "]" * 100_000 + "}")
    assert stored("signature") is None
