from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from driftscope.checkpoints import save_checkpoint
from driftscope.cli import app
from tests import tiny

RUNNER = CliRunner()


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """EAGLE 3.1 in tiny, with a norm that was never trained."""
    config = dataclasses.replace(tiny.CONFIG, head="own", fc_norm=True, carry="post")
    weights = tiny.weights(config)
    del weights["embed_tokens.weight"]
    weights["norm.weight"] = torch.ones_like(weights["norm.weight"])
    return save_checkpoint(tmp_path_factory.mktemp("drafters") / "tiny", config, weights, "specforge")


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")


def test_what_is_seen_of_a_checkpoint(checkpoint: Path) -> None:
    result = RUNNER.invoke(app, ["inspect", str(checkpoint)])
    assert result.exit_code == 0, result.stderr
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert any(line.startswith("layout specforge: ") for line in lines)
    assert "carry post config norm_output" in lines
    assert "d2t int64 20 used" in lines
    assert "norm.weight float32 24 used all ones" in lines
    assert any(line.startswith("vocabulary 20 draft ids of 60 (33.3%); d2t read as offset") for line in lines)
    assert any(line.startswith("aux_boundaries 1, 2, 3") for line in lines)
    assert any(line.startswith("plain defaults: ") for line in lines)
    assert lines[-1] == "warning norm.weight is exactly ones: not trained, or not saved"


def test_json_is_the_inspection(checkpoint: Path) -> None:
    result = RUNNER.invoke(app, ["inspect", str(checkpoint), "--json", "--carry", "pre", "--aux", "1,2,4"])
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["switches"]["carry"] == {"value": "pre", "origin": "user", "detail": "--set carry"}
    assert found["switches"]["aux_boundaries"]["value"] == [1, 2, 4]


def test_a_checkpoint_that_would_not_run_is_shown_and_is_exit_2(checkpoint: Path, tmp_path: Path) -> None:
    target = {"model_type": "llama", "hidden_size": 32, "num_hidden_layers": 4, "vocab_size": 60}
    (tmp_path / "config.json").write_text(json.dumps(target))
    result = RUNNER.invoke(app, ["inspect", str(checkpoint), "--target", str(tmp_path)])
    assert result.exit_code == 2
    assert "problem" in result.stdout
    assert "tensor" in result.stdout
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert "24" in line
    assert "32" in line


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["/no/such/checkpoint"], "no such file"),
        (["{checkpoint}", "--target", "/no/such/target"], "no config of the target /no/such/target"),
        (["{checkpoint}", "--set", "no_such_switch=1"], "no switch 'no_such_switch'"),
    ],
)
def test_what_cannot_be_inspected_is_one_line(checkpoint: Path, arguments: list[str], words: str) -> None:
    arguments = [argument.format(checkpoint=checkpoint) for argument in arguments]
    result = RUNNER.invoke(app, ["inspect", *arguments])
    assert result.exit_code == 2
    assert result.stdout == ""
    assert words in result.stderr.splitlines()[-1]
