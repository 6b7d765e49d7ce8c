"""Golden files: written from a sound run, read back, a gate; what is no baseline is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from driftscope import asserts
from driftscope.cli import app
from driftscope.errors import DriftscopeError, RunError
from driftscope.runs.run import Run
from driftscope.serving.golden import GoldenError, gate_counters, gate_run, read_golden, write_golden
from driftscope.serving.reading import walk_of
from driftscope.stats.walks import Walks
from tests.fake_run import Fake
from tests.rich_run import write_rich_run
from tests.serving.planted import counters

FAKE = Fake(prompts=14, anchors=24, depth=3, heads=2, loops=0)
BEATEN = {"control": {"agreement": 0.4, "anchors": 112, "lost": [], "reason": ""}}


def written(folder: Path, fake: Fake = FAKE, trust: dict[str, Any] | None = None) -> Run:
    run = write_rich_run(folder, fake)
    # As long as the anchors of the fake run and what lies ahead of them.
    info = [{**p.model_dump(), "prompt_length": 5, "text_length": 5 + fake.anchors + 17} for p in run.info.prompts]
    run.update(prompts=info, trust=BEATEN if trust is None else trust)
    return Run.open(folder)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return written(tmp_path_factory.mktemp("golden") / "run")


@pytest.fixture(scope="module")
def golden(run: Run) -> Path:
    file = run.folder.parent / "golden.yaml"
    write_golden(run, file)
    return file


def test_it_holds_figures_digits_and_where_they_are_from(run: Run, golden: Path) -> None:
    held, walks = read_golden(golden), walk_of(run)
    assert held.sha256 == run.info.checkpoint.sha256
    assert held.walks.depth == 3
    for k in (1, 2, 3):
        assert (held.walks.counts(k) == walks.counts(k)).all()
    text = golden.read_text()
    assert "served walk" in text
    assert "agreement: 0.4" in text
    summary = run.summary()["acceptance_length"]["served"]
    assert f"mean: {round(summary['mean'], 4)}" in text


def test_the_run_itself_passes_and_a_worse_one_fails(run: Run, golden: Path, tmp_path: Path) -> None:
    held = read_golden(golden)
    assert gate_run(run, held).verdict == "passed"
    assert asserts.assert_matches_golden(run, golden).verdict == "passed"
    worse = written(tmp_path / "worse", FAKE.changed(acceptance=0.4, seed=3))
    found = gate_run(worse, held)
    assert (found.verdict, found.exit_code) == ("failed", 1)
    with pytest.raises(AssertionError, match="DS405"):
        asserts.assert_matches_golden(worse, golden)
    done = CliRunner().invoke(app, ["engine", str(worse.folder), "--golden", str(golden), "--json"])
    assert done.exit_code == 1
    assert json.loads(done.stdout)["gate"]["verdict"] == "failed"


def test_counters_are_held_against_it_without_a_run(golden: Path, tmp_path: Path) -> None:
    held = read_golden(golden)
    long = Walks(3, tuple(replace(p, prompt=f"{p.prompt}{n}") for n in range(6) for p in held.walks.prompts))
    sound = counters(long)
    assert gate_counters(sound, held).verdict in ("passed", "unknown")
    low = replace(sound, per_position=tuple(count // 3 for count in sound.per_position or ()), accepted=0)
    low = replace(low, accepted=sum(low.per_position or ()))
    assert gate_counters(low, held).verdict == "failed"
    with pytest.raises(AssertionError, match="engine accepts"):
        asserts.assert_matches_golden(low, golden)
    file = tmp_path / "counters.json"
    file.write_text(json.dumps({"drafts": low.drafts, "per_position": low.per_position}))
    done = CliRunner().invoke(app, ["engine", "--golden", str(golden), "--metrics", str(file)])
    assert done.exit_code == 1
    assert "failed" in done.stdout


@pytest.mark.parametrize(
    ("trust", "words"),
    [
        ({}, "nobody asked"),
        ({"control": {"lost": ["random drafter"], "reason": "the drafter predicts no better"}}, "no better"),
        ({"texts": {"reason": "the texts are loops"}, **BEATEN}, "loops"),
    ],
)
def test_a_run_that_proves_nothing_is_no_baseline(tmp_path: Path, trust: dict[str, Any], words: str) -> None:
    made = written(tmp_path / "run", trust=trust)
    with pytest.raises(GoldenError, match=words):
        write_golden(made, tmp_path / "golden.yaml")
    assert not (tmp_path / "golden.yaml").exists()


def damage(text: str) -> dict[str, tuple[str, str]]:
    return {
        "cut off": (text[: len(text) // 2], "not valid YAML"),
        "cut off behind a line": (text.split("prompts:")[0], "not a golden file, or cut off"),
        "not YAML": ("a: [", "not valid YAML"),
        "a list": ("- 1\n", "expected a YAML mapping"),
        "another version": (text.replace("golden: 1", "golden: 7"), "version '7'"),
        "a tag": (text.replace("golden: 1", "golden: !!python/object/apply:os.system [true]"), "not valid YAML"),
        "aliases": ("a: &a [1, 1]\nb: [*a, *a]\n", "aliases"),
        "a figure changed by hand": (text.replace("rounds: ", "rounds: 1", 1), "changed by hand"),
        "digits that are none": (text.replace("accepted: '", "accepted: '-", 1), "not a golden file"),
        "nothing": ("", "expected a YAML mapping"),
    }


@pytest.mark.parametrize("kind", list(damage("")))
def test_a_damaged_file_is_refused_in_one_line(golden: Path, tmp_path: Path, kind: str) -> None:
    text, words = damage(golden.read_text())[kind]
    file = tmp_path / "bad.yaml"
    file.write_text(text)
    with pytest.raises(GoldenError) as caught:
        read_golden(file)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_other_prompts_cannot_be_gated(run: Run, golden: Path) -> None:
    held = read_golden(golden)
    renamed = replace(held, walks=Walks(3, tuple(replace(p, prompt=f"x{p.prompt}") for p in held.walks.prompts)))
    with pytest.raises(GoldenError, match="same --prompts"):
        gate_run(run, renamed)


def test_anchors_that_skip_have_no_walk(tmp_path: Path) -> None:
    made = written(tmp_path / "run")
    for shard in (made.folder / "shards" / "clean").iterdir():
        rows = pq.read_table(shard / "anchors.parquet")
        even = [anchor % 2 == 0 for anchor in rows["anchor"].to_pylist()]
        pq.write_table(rows.filter(pa.array(even)), shard / "anchors.parquet")
    with pytest.raises(RunError, match="without --anchors"):
        walk_of(Run.open(made.folder))


def test_a_card_has_a_table_and_the_verdict(run: Run) -> None:
    done = CliRunner().invoke(app, ["card", str(run.folder)], catch_exceptions=False)
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert lines[0] == "## Acceptance"
    rows = [line for line in lines if line.startswith("|")]
    assert len({line.count("|") for line in rows}) == 1
    assert [row.split("|")[1].strip() for row in rows[2:]] == ["1", "2", "3"]
    assert run.info.checkpoint.sha256[:12] in done.stdout
    assert isinstance(GoldenError("x"), DriftscopeError)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "nothing to compare"),
        (["--metrics", "x"], "name the run folder"),
        (["RUN", "--same-prompts", "--same-kinds", "--metrics", "x"], "exclude each other"),
        (["RUN", "--metrics", "nothing-there"], "cannot be read"),
    ],
)
def test_a_command_that_makes_no_sense_is_refused(run: Run, words: list[str], message: str) -> None:
    given = [str(run.folder) if word == "RUN" else word for word in words]
    done = CliRunner().invoke(app, ["engine", *given])
    assert done.exit_code == 2
    assert message in " ".join(done.stderr.split())
