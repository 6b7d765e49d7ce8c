"""What a browser may ask for, and what is checked before a measurement is started."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from driftscope.app import jobs, rights
from driftscope.app.checks import check_checkpoint, check_out, check_prompts, check_target, is_path
from driftscope.app.library import PATHS
from driftscope.errors import DriftscopeError
from tests.app.conftest import messages, words

Start = Callable[..., AppTest]


@pytest.fixture
def given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with runs/ as the only folder that was given."""
    (tmp_path / "here" / "runs").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv(PATHS, json.dumps(["runs"]))
    monkeypatch.delenv(rights.FOLDERS, raising=False)
    return tmp_path / "here"


def test_only_files_below_the_folders_are_read(given: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outside = given.parent / "outside"
    outside.mkdir()
    (given / "link").symlink_to(outside)
    assert rights.readable(given / "runs" / "x")
    for path in (outside, given / ".." / "outside", given / "link" / "x", given.parent / "here-too"):
        assert not rights.readable(path), path
    (outside / "prompts.txt").write_text("hello\n")
    with pytest.raises(DriftscopeError, match="--files"):
        check_prompts(str(outside / "prompts.txt"))
    monkeypatch.setenv(rights.FOLDERS, json.dumps([str(outside)]))
    assert check_prompts(str(outside / "prompts.txt"))[0] == 1


def test_what_is_typed_is_looked_at(given: Path) -> None:
    folder = given / "drafter"
    folder.mkdir()
    with pytest.raises(DriftscopeError, match="no such file"):
        check_checkpoint("./nowhere")
    with pytest.raises(DriftscopeError, match="no such file"):
        check_checkpoint("nowhere")
    with pytest.raises(DriftscopeError, match="holds no weights"):
        check_checkpoint("drafter")
    with pytest.raises(DriftscopeError, match="no config"):
        check_target("./drafter")
    with pytest.raises(DriftscopeError, match="no such file"):
        check_prompts("gone.jsonl")
    (folder / "model.safetensors").write_bytes(b"")
    (folder / "config.json").write_text("{}")
    assert check_checkpoint("drafter") == "a folder with weights and a config"
    assert check_target("./drafter") == "a folder with a config"
    assert "Hub" in check_checkpoint("owner/name")
    assert "Hub" in check_target("gpt2")
    assert check_out("runs/new") == "a new folder"
    with pytest.raises(DriftscopeError, match="exists"):
        check_out("drafter")
    with pytest.raises(DriftscopeError, match="--files"):
        check_out("../elsewhere")


def test_a_hub_id_is_no_path(given: Path) -> None:
    assert not is_path("owner/name")
    assert is_path("runs/name"), "the folder before it is there"
    assert is_path("a/b/c")


def test_new_run_refuses_a_missing_path_at_once(app: Start, given: Path) -> None:
    test = app(given / "runs", page="new_run")
    test.text_input(key="new-checkpoint").set_value("./nowhere").run()
    assert any("no such file" in text for text in messages(test))
    assert next(button for button in test.button if button.label == "Measure").disabled


def test_without_the_right_nothing_can_be_started(app: Start, library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(rights.STARTING, "token")
    monkeypatch.setenv(rights.TOKEN, "secret")
    monkeypatch.setattr(jobs, "start", lambda *_, **__: pytest.fail("started"))
    for token, may in (("", False), ("wrong", False), ("secret", True)):
        test = app(library, page="new_run", **({"token": token} if token else {}))
        assert ("--allow-start" in words(test)) is not may
    monkeypatch.setenv(rights.STARTING, "no")
    assert "--allow-start" in words(app(library, page="new_run", token="secret"))
