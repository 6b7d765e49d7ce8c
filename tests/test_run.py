"""The run folder: created once, filled by several writers, resumed after a kill."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftscope.errors import RunError
from driftscope.runs.folder import _file_name
from driftscope.runs.run import Run
from driftscope.runs.schema import SCHEMA_VERSION
from tests.fake_run import Fake, meta, prompt_ids, tables, write_fake_run

SMALL = Fake(prompts=3, anchors=5, depth=3)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.create(tmp_path / "runs" / "a", **meta(SMALL))


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def full_disk(*_: Any, **__: Any) -> None:
    raise OSError(28, "No space left on device")


def test_create_then_open_gives_the_same_info(run: Run) -> None:
    again = Run.open(run.folder)
    assert again.info == run.info
    assert again.info.target.hidden_size == 64
    assert again.info.schema_version == SCHEMA_VERSION


def test_create_leaves_an_existing_run_alone(run: Run) -> None:
    run.write_shard("clean", "chat-00", tables(SMALL, 0))
    before = contents(run.folder.parent)
    with pytest.raises(RunError, match="exists: use --resume"):
        Run.create(run.folder, **meta(SMALL))
    assert contents(run.folder.parent) == before


def test_create_takes_an_empty_folder_but_not_a_file(tmp_path: Path) -> None:
    assert Run.create(tmp_path, **meta(SMALL)).folder == tmp_path
    file = tmp_path / "file"
    file.write_text("mine")
    with pytest.raises(RunError, match="exists"):
        Run.create(file, **meta(SMALL))
    assert file.read_text() == "mine"


def test_create_refuses_bad_meta_before_writing(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"target\.layers"):
        Run.create(tmp_path / "a", **(meta(SMALL) | {"target": {"name": "t", "fingerprint": "f", "hidden_size": 1}}))
    assert not list(tmp_path.iterdir())


def test_create_on_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("driftscope.runs.folder.os.fsync", full_disk)
    with pytest.raises(RunError, match="No space left on device; choose another folder with -o"):
        Run.create(tmp_path / "a", **meta(SMALL))
    assert not list(tmp_path.iterdir())


def test_create_below_a_file_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot write") as caught:
        Run.create(tmp_path / "file" / "a", **meta(SMALL))
    assert "\n" not in str(caught.value)


def test_open_without_a_run(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"it has no run\.json"):
        Run.open(tmp_path)


@pytest.mark.parametrize("text", ["{", "[]", "{}", "null"])
def test_open_of_something_else(run: Run, text: str) -> None:
    (run.folder / "run.json").write_text(text)
    with pytest.raises(RunError, match=r"is not the run\.json of a run"):
        Run.open(run.folder)


@pytest.mark.parametrize(
    ("version", "fix"), [(SCHEMA_VERSION + 1, "upgrade driftscope"), (SCHEMA_VERSION - 1, "probe again")]
)
def test_another_schema_is_refused_by_version(run: Run, version: int, fix: str) -> None:
    path = run.folder / "run.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"schema_version": version}))
    with pytest.raises(RunError, match=f"schema version {version}, this driftscope reads {SCHEMA_VERSION}: {fix}"):
        Run.open(run.folder)


def test_shards_are_read_as_one_table(run: Run) -> None:
    written = [tables(SMALL, number) for number in range(3)]
    for number, name in enumerate(prompt_ids(SMALL)):
        assert not run.done("clean", name)
        run.write_shard("clean", name, written[number])
        assert run.done("clean", name)
    frame = run.table("anchors")
    expected = pd.concat([part["anchors"] for part in written], ignore_index=True)
    assert len(frame) == len(expected)
    assert list(frame["prompt"]) == list(expected["prompt"])
    assert frame["rms/carry"].to_numpy() == pytest.approx(expected["rms/carry"].to_numpy(), rel=1e-6)
    assert len(run.table("variants")) == 1
    assert run.table("steps").empty
    assert run.probes == ["clean"]


def test_table_of_one_probe_and_missing_families(run: Run) -> None:
    shard = tables(SMALL, 0)
    run.write_shard("clean", "chat-00", shard)
    run.write_shard("noise", "chat-00", {"anchors": shard["anchors"].drop(columns="rms/state").assign(variant="n")})
    frame = run.table("anchors")
    assert frame.groupby("variant")["rms/state"].count().to_dict() == {"clean": len(shard["anchors"]), "n": 0}
    assert set(run.table("anchors", probe="noise")["variant"]) == {"n"}
    assert "rms/state" not in run.table("anchors", probe="noise")


def test_table_sees_new_shards_and_is_safe_to_change(run: Run) -> None:
    run.write_shard("clean", "chat-00", tables(SMALL, 0))
    frame = run.table("anchors")
    frame["drafted"] = 0
    assert run.table("anchors")["drafted"].any()
    run.write_shard("clean", "chat-01", tables(SMALL, 1))
    assert len(run.table("anchors")) == 2 * len(frame)


def test_first_writer_of_a_shard_is_kept(run: Run) -> None:
    run.write_shard("clean", "chat-00", tables(SMALL, 0))
    before = contents(run.folder)
    run.write_shard("clean", "chat-00", tables(SMALL, 1))
    assert contents(run.folder) == before


def test_writer_that_comes_second_at_the_rename_keeps_the_first(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    rename, other = os.rename, Run.open(run.folder)

    def beaten(source: Path, destination: Path) -> None:
        monkeypatch.setattr("driftscope.runs.folder.os.rename", rename)
        other.write_shard("clean", "chat-00", tables(SMALL, 0))
        rename(source, destination)

    monkeypatch.setattr("driftscope.runs.folder.os.rename", beaten)
    run.write_shard("clean", "chat-00", tables(SMALL, 1))
    assert set(run.table("anchors")["prompt"]) == {"chat-00"}
    assert not list(run.folder.rglob(".new-*"))


def test_full_disk_keeps_earlier_shards(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run.write_shard("clean", "chat-00", tables(SMALL, 0))
    before = contents(run.folder)
    with monkeypatch.context() as patch:
        patch.setattr("driftscope.runs.parquet.pq.write_table", full_disk)
        with pytest.raises(RunError, match="No space left on device; what was measured is kept") as caught:
            run.write_shard("clean", "chat-01", tables(SMALL, 1))
        patch.setattr("driftscope.runs.folder.os.fsync", full_disk)
        with pytest.raises(RunError, match="No space left on device"):
            run.update(findings=[{"code": "DS101", "title": "Growth", "statement": "it grows"}])
    assert "\n" not in str(caught.value)
    assert not run.done("clean", "chat-01")
    assert {name: data for name, data in contents(run.folder).items() if not name.endswith(".lock")} == before
    assert run.info.findings == []


def test_nonconforming_shard_writes_nothing(run: Run) -> None:
    shard = tables(SMALL, 0)
    with pytest.raises(RunError, match="undeclared column extra"):
        run.write_shard("clean", "chat-00", shard | {"heads": shard["heads"].assign(extra=1)})
    assert not run.done("clean", "chat-00")


def test_damaged_shard_is_named(run: Run) -> None:
    run.write_shard("clean", "chat-00", tables(SMALL, 0))
    (file,) = run.folder.glob("shards/clean/chat-00/anchors.parquet")
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(RunError, match=r"cannot read .*anchors\.parquet.*delete .*chat-00 and measure it again"):
        run.table("anchors")


def test_killed_writer_leaves_a_run_that_resumes(run: Run) -> None:
    script = (
        "import os, sys; from driftscope.runs import folder as r; from driftscope.runs.run import Run;"
        "from tests.fake_run import *;"
        "fake = Fake(prompts=3, anchors=5, depth=3); run = Run.open(sys.argv[1]);"
        "run.write_shard('clean', 'chat-00', tables(fake, 0));"
        "r.os.rename = lambda *_: os._exit(9);"
        "run.write_shard('clean', 'chat-01', tables(fake, 1))"
    )
    root = Path(__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", script, str(run.folder)], cwd=root, check=False)
    assert done.returncode == 9
    resumed = Run.resume(run.folder, **meta(SMALL))
    assert [resumed.done("clean", name) for name in prompt_ids(SMALL)] == [True, False, False]
    assert set(resumed.table("anchors")["prompt"]) == {"chat-00"}
    for number, name in enumerate(prompt_ids(SMALL)):
        if not resumed.done("clean", name):
            resumed.write_shard("clean", name, tables(SMALL, number))
    whole = write_fake_run(run.folder.parent / "b", SMALL)
    pd.testing.assert_frame_equal(resumed.table("anchors"), whole.table("anchors"))


def test_resume_sweeps_only_old_leftovers(run: Run) -> None:
    old, new = (run.folder / "shards" / "clean" / f".new-{name}" for name in ("old", "new"))
    old.mkdir(parents=True)
    new.mkdir()
    os.utime(old, (0, 0))
    Run.resume(run.folder)
    assert not old.exists()
    assert new.exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"checkpoint": {"path": "x", "sha256": "cd", "layout": "eagle3"}}, r'checkpoint.sha256 was "abab.*, now "cd"'),
        (
            {"checkpoint": meta(SMALL)["checkpoint"] | {"switches": {"norm_output": True}}},
            "norm_output was false, now true",
        ),
        ({"target": {"fingerprint": "f2"}}, 'target.fingerprint was "f1", now "f2"'),
        ({"settings": {"depth": 5}}, "settings.depth was 3, now 5"),
        ({"settings": {"window": 64}}, "settings.window was null, now 64"),
        ({"prompts": meta(Fake(prompts=2))["prompts"]}, "prompts was"),
    ],
)
def test_resume_names_the_difference(run: Run, change: dict[str, Any], message: str) -> None:
    with pytest.raises(RunError, match=message):
        Run.resume(run.folder, **(meta(SMALL) | change))


def test_resume_accepts_what_was_moved_and_tuples(run: Run) -> None:
    same = meta(SMALL)
    same["checkpoint"]["path"] = "elsewhere"
    same["target"] |= {"name": "/models/target", "sinks": (0,)}
    assert Run.resume(run.folder, **same).info == run.info


def _update(folder: Path, field: str, value: Any, times: int) -> None:
    run = Run.open(folder)
    for _ in range(times):
        run.update(**{field: value})


def test_update_of_two_processes_keeps_both(run: Run) -> None:
    context = multiprocessing.get_context("fork")
    jobs = [
        context.Process(
            target=_update,
            args=(run.folder, "findings", [{"code": "DS101", "title": "Growth", "statement": "it grows"}], 20),
        ),
        context.Process(target=_update, args=(run.folder, "provenance", {"gpu": "none"}, 20)),
    ]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
    info = Run.open(run.folder).info
    assert info.findings == [{"code": "DS101", "title": "Growth", "statement": "it grows"}]
    assert info.provenance == {"gpu": "none"}


def test_update_refuses_an_unknown_field(run: Run) -> None:
    with pytest.raises(RunError, match="finding: Extra inputs"):
        run.update(finding=[])
    assert Run.open(run.folder).info == run.info


def test_run_json_is_strict_json_even_with_nan(run: Run) -> None:
    run.update(provenance={"loss": float("nan"), "folder": Path("x")})

    def refuse(token: str) -> None:
        raise AssertionError(token)

    content = json.loads((run.folder / "run.json").read_text(), parse_constant=refuse)
    assert content["provenance"] == {"loss": None, "folder": "x"}


def test_strange_prompt_ids_get_their_own_shards(run: Run) -> None:
    names = ["a/b", "a_b", "../../x", "A", "a", ".", "..", "", "é" * 300, "con:1", "a?", "trailing."]
    for name in names:
        run.write_shard("clean", name, {"anchors": tables(SMALL, 0)["anchors"].assign(prompt=name)})
    assert set(run.table("anchors")["prompt"]) == set(names)
    shards = list((run.folder / "shards" / "clean").iterdir())
    assert len(shards) == len(names)
    assert len({shard.name.lower() for shard in shards}) == len(names)


@given(st.text(max_size=400))
def test_file_names_are_safe_for_any_text(text: str) -> None:
    name = _file_name(text)
    assert 0 < len(name) <= 100
    assert not set(name) - set("abcdefghijklmnopqrstuvwxyz0123456789_-.")
    assert name[0] not in ".-"
    assert name[-1] != "."


def test_stored_rows_are_plain_parquet(run: Run) -> None:
    run.write_shard("clean", "chat-00", tables(SMALL, 0))
    schema = pq.read_schema(run.folder / "shards/clean/chat-00/anchors.parquet")
    assert "rms/carry" in schema.names
    assert "__index_level_0__" not in schema.names


def test_reprs_name_the_run_and_escape(run: Run) -> None:
    run.update(target=meta(SMALL)["target"] | {"name": "<script>"})
    assert "&lt;script&gt;" in run._repr_html_()
    assert "<script>" not in run._repr_html_()
    assert dict(run.__rich_repr__())["prompts"] == 3
    assert str(run.folder) in repr(run)


def test_nothing_here_imports_torch() -> None:
    code = (
        "import sys, driftscope.runs.run, driftscope.runs.summary, driftscope.stats; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[1], check=False).returncode == 0


def test_columns_are_read_as_they_are_asked_for(tmp_path: Path) -> None:
    fake = Fake(prompts=2, anchors=3, depth=2)
    run = Run.create(tmp_path / "a", **meta(fake))
    for number, name in enumerate(prompt_ids(fake)):
        run.write_shard("clean", name, tables(fake, number))
    whole = Run.open(tmp_path / "a").table("anchors")
    some = run.table("anchors", columns=["step", "mass/", "not there"])
    assert list(some) == ["step", *(name for name in whole if str(name).startswith("mass/"))]
    pd.testing.assert_frame_equal(some, whole[list(some)])
    pd.testing.assert_frame_equal(run.table("anchors"), whole)
    pd.testing.assert_frame_equal(run.table("anchors", columns=["rank"]), whole[["rank"]])


def test_one_prompt_is_read_from_its_own_shard(tmp_path: Path) -> None:
    fake = Fake(prompts=2, anchors=3, depth=2)
    run = Run.create(tmp_path / "a", **meta(fake))
    for number, name in enumerate(prompt_ids(fake)):
        run.write_shard("clean", name, tables(fake, number))
    name = prompt_ids(fake)[1]
    whole = run.table("anchors")
    mine = run.prompt_table("anchors", "clean", name)
    assert mine["prompt"].tolist() == [name] * len(mine)
    assert mine["rms/carry"].tolist() == whole.loc[whole["prompt"] == name, "rms/carry"].tolist()
    assert run.prompt_table("anchors", "clean", "gone").empty
