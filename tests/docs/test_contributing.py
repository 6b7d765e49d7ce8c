"""The worked examples of CONTRIBUTING.md, as they stand there: each adds its thing in one file, by public names only."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from driftscope import probes
from driftscope.checkpoints import inspect_checkpoint, open_checkpoint, save_checkpoint
from driftscope.checkpoints.families import registry as families
from driftscope.cli import app
from driftscope.drafter.build import target_token_ids
from driftscope.errors import CheckpointError
from driftscope.findings import assess, load
from driftscope.findings import registry as codes
from driftscope.from_engines import formats
from driftscope.runs.run import Run
from driftscope.show.gallery import pictures
from tests.checkpoints.layouts import PLAIN, weights
from tests.probes import planted

TEXT = (Path(__file__).resolve().parents[2] / "CONTRIBUTING.md").read_text(encoding="utf-8")


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What an example registers is gone after it."""
    monkeypatch.setattr(probes, "_registered", {})
    monkeypatch.setattr(codes, "_coded", dict(codes._coded))
    monkeypatch.setattr(families, "_registered", [])
    monkeypatch.setattr(formats, "_registered", [])
    monkeypatch.chdir(tmp_path)


def example(section: str) -> dict[str, Any]:
    """The names that the Python blocks of a section leave behind."""
    part = TEXT.split(f"\n## {section}\n")[1].split("\n## ")[0]
    names: dict[str, Any] = {"__name__": "example"}
    for block in re.findall(r"```python\n(.*?)```", part, re.DOTALL):
        exec(compile(block, f"CONTRIBUTING.md, {section}", "exec"), names)
    return names


def test_a_probe_in_one_file() -> None:
    """It measures a pair, and its fake run is told everywhere."""
    made = example("A probe")
    subject = planted.subject(planted.from_state())
    rows = made["PROBE"].measure(subject)["steps"]
    # The planted drafter is always right, at probabilities far below one half.
    assert (rows["sum/doubt"] == rows["anchors"]).all()
    run = Run.open("runs/doubt")
    step = run.summary()["probes"]["doubt"]["steps"][0]["doubt"]
    stored = run.table("steps", "doubt").query("step == 1")
    assert step["mean"] == pytest.approx(stored["sum/doubt"].sum() / stored["anchors"].sum())
    assert [picture.section for picture in pictures([run])] == ["doubt"]
    shown = CliRunner().invoke(app, ["show", "runs/doubt"]).stdout
    assert "Doubt: how often is the drafter right without being sure?" in shown
    assert "nothing was measured" not in shown


def test_a_finding_in_one_file() -> None:
    made = example("A probe")
    made |= example("A finding")
    found = {part.code: part for part in assess(made["run"], load()).findings}
    assert found["DS190"].evidence[0].threshold == 0.1
    told = json.loads(CliRunner().invoke(app, ["show", "runs/doubt", "--json"]).stdout)
    assert "DS190" in {part["code"] for part in told["findings"]}
    Path("limits.toml").write_text("doubt_share = 0.9\n", encoding="utf-8")
    assert "DS190" in assess(made["run"], Path("limits.toml")).clear
    assert "right and does not know it" in " ".join(CliRunner().invoke(app, ["explain", "DS190"]).stdout.split())


def test_a_family_in_one_file() -> None:
    """Ids of the target are stated, converted when written, and read without a guess; messages have its own names."""
    example("A family of checkpoints")
    tensors = weights(PLAIN)
    save_checkpoint("acme", PLAIN, tensors, "acme")
    stored = load_file("acme/model.safetensors")
    wanted = target_token_ids(PLAIN, tensors["d2t"])
    assert torch.equal(stored["vocab_ids"], wanted)
    opened = open_checkpoint("acme")
    assert (opened.layout, opened.config.vocab_map, opened.config.aux_boundaries) == (
        "acme",
        "index",
        PLAIN.aux_boundaries,
    )
    assert torch.equal(target_token_ids(opened.config, opened.weights["d2t"]), wanted)
    told = inspect_checkpoint("acme")
    assert told.vocab is not None
    assert (told.vocab.reading, told.vocab.reason) == ("index", "the layout stores target ids")
    assert not any("offset" in warning for warning in opened.warnings)
    del stored["midlayer.hidden_norm.weight"]
    save_file(stored, "acme/model.safetensors")
    with pytest.raises(CheckpointError, match=r"midlayer\.hidden_norm\.weight is missing"):
        open_checkpoint("acme")


def test_a_layout_of_dumps_in_one_file() -> None:
    made = example("A layout of dumps")
    held = {"acme_tokens": torch.arange(4), "acme_states": torch.zeros(4, 2, 3)}
    found = formats.recognised(Path("acme.pt"), held)
    assert found.name == "acme"
    assert found.read(Path("acme.pt"), held, 3)[0].token_ids.tolist() == [0, 1, 2, 3]
    assert made["read"] is found.read
