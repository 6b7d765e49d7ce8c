"""Command lines about a run: they ask for the same run."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from driftscope.app.asking import going_on, local_target, switches
from driftscope.app.library import Entry
from driftscope.runs.run import Run
from tests.fake_run import Fake, meta

COMMAND = (
    "/bin/driftscope probe d/post --prompts p.jsonl --max-new-tokens 64 --probes norms --out runs/a --seed 3 --set x=1"
)


def entry(folder: Path, **changes: Any) -> Entry:
    info = Run.create(folder, **meta(Fake())).info
    return Entry("a", folder, info.model_copy(update=changes))


@pytest.mark.parametrize(
    ("command", "kept"),
    [
        (COMMAND, "d/post --prompts p.jsonl --max-new-tokens 64 --seed 3 --set x=1"),
        ("driftscope probe --resume --probes=norms,pin --out=runs/a --depth 4 -- -odd/name", "--depth 4 -- -odd/name"),
    ],
)
def test_the_recorded_prompts_and_flags_are_kept(tmp_path: Path, command: str, kept: str) -> None:
    words = going_on(entry(tmp_path / "run", provenance={"command": command}), "pin")
    new = ["driftscope", "probe", "--probes", "pin", "-o", str(tmp_path / "run"), "--resume"]
    assert words == [*new, *shlex.split(kept)]


def test_without_a_recorded_command_the_settings_are_named(tmp_path: Path) -> None:
    made = entry(tmp_path / "run", provenance={"command": "train.py --epochs 3"})
    words = going_on(made, "depth")
    assert made.info is not None
    assert words[:3] == ["driftscope", "probe", made.info.checkpoint.path]
    assert words[words.index("--target") + 1] == made.info.target.name
    assert words[words.index("--depth") + 1] == str(made.info.settings["depth"])


def test_switches_of_the_user_are_asked_for_again(tmp_path: Path) -> None:
    info = entry(tmp_path / "run").info
    assert info is not None
    told = {"aux_boundaries": (1, 2), "carry": "post", "fc_norm": True, "head_dim": 64}
    origins = {name: {"source": "user"} for name in ("aux_boundaries", "carry", "fc_norm")}
    origins["head_dim"] = {"source": "config"}
    checkpoint = info.checkpoint.model_copy(update={"switches": told, "origins": origins})
    changed = info.model_copy(update={"checkpoint": checkpoint})
    assert switches(changed) == ["--set=aux_boundaries=[1, 2]", "--set=carry=post", "--set=fc_norm=true"]


def test_only_a_target_on_this_machine_is_read(tmp_path: Path) -> None:
    info = entry(tmp_path / "run").info
    assert info is not None
    assert local_target(info) == []
    here = info.model_copy(update={"target": info.target.model_copy(update={"name": str(tmp_path)})})
    assert local_target(here) == ["--target", str(tmp_path)]
