"""`driftscope probes`, with a pair to price them for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from driftscope.cli import app
from driftscope.commands.probes import named
from tests import tiny_pair


def test_a_pair_gives_variants_and_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    saved = tiny_pair.save_pair(tmp_path)
    asked = ["probes", str(saved.checkpoint), "--target", str(saved.target), "--prompts", "3", "--depth", "2"]
    rows = {row["probe"]: row for row in json.loads(CliRunner().invoke(app, [*asked, "--json"]).stdout)}
    assert rows["pin"]["variants"] == ["pin/free", "pin/fused", "pin/step1", "pin/keys"]
    assert all(row["chain_seconds"] > 0 for row in rows.values())
    assert rows["template"]["capture_seconds"] > 0
    assert rows["norms"]["capture_seconds"] == 0
    table = CliRunner().invoke(app, asked)
    assert table.exit_code == 0
    for word in ("fused, step1, keys", "captures", "shared", "3 prompts"):
        assert word in table.stdout


def test_without_a_pair_nothing_is_timed() -> None:
    rows = json.loads(CliRunner().invoke(app, ["probes", "--json"]).stdout)
    assert {"norms", "noise", "length"} <= {row["probe"] for row in rows}
    assert not {"variants", "chain_seconds"} & set(rows[0])
    alone = CliRunner().invoke(app, ["probes", "--target", "x"])
    assert alone.exit_code == 2


def test_seeds_are_counted_and_a_long_list_is_shortened() -> None:
    assert named("noise", ["noise/clean", "noise/state/1/seed0", "noise/state/1/seed1"]) == "clean, state/1 (2 seeds)"
    assert named("p", [f"p/{n}" for n in range(12)]) == "0, 1, 2, 3, 4, ..., 10, 11"
