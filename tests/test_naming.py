from __future__ import annotations

from pathlib import Path

import pytest

from driftscope.runs.naming import fresh_run, short_name


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("drafters/eagle3.1", "eagle3.1"),
        ("drafters/eagle3.1/", "eagle3.1"),
        ("drafters/eagle3/model.pt", "eagle3"),
        ("/data/eagle3/pytorch_model.bin", "eagle3"),
        ("my-drafter.safetensors", "my-drafter"),
        ("model.pt", "model"),
        ("/model.pt", "model"),
        ("org/EAGLE3-LLaMA3.1-Instruct-8B", "EAGLE3-LLaMA3.1-Instruct-8B"),
    ],
)
def test_short_name(path: str, name: str) -> None:
    assert short_name(path) == name


def test_a_dot_is_the_folder_that_it_stands_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert short_name(".") == tmp_path.name


def test_a_new_run_never_gets_the_folder_of_another(tmp_path: Path) -> None:
    assert fresh_run("d/eagle3.1", tmp_path) == tmp_path / "eagle3.1"
    (tmp_path / "eagle3.1").mkdir()
    assert fresh_run("d/eagle3.1", tmp_path) == tmp_path / "eagle3.1-2"
    (tmp_path / "eagle3.1-2").mkdir()
    assert fresh_run("d/eagle3.1", tmp_path) == tmp_path / "eagle3.1-3"
