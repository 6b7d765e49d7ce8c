"""Measurements as processes: progress, stop, resume, and errors as they are."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from driftscope.app import jobs, rights
from driftscope.app.jobs import Job, Progress
from driftscope.errors import RunError
from driftscope.runs.run import Run
from tests.app.conftest import go, messages, words
from tests.tiny_pair import save_pair

PROGRAM = """
import pathlib, sys, time
words = sys.argv[1:]
folder = pathlib.Path(next(word for word in words if word.startswith("--out=")).removeprefix("--out="))
print("starting", file=sys.stderr)
print("capturing target: 3/3 in 1 s", file=sys.stderr)
print("probing: 0/4", file=sys.stderr)
(folder / "shards/clean/a").mkdir(parents=True, exist_ok=True)
(folder / "shards/clean/.new-b").mkdir(exist_ok=True)
if "--resume" in words:
    sys.exit(1)
if "wrong" in words:
    print("error: no such folder wrong", file=sys.stderr)
    sys.exit(2)
try:
    time.sleep(60)
except KeyboardInterrupt:
    print("interrupted: what was measured is kept", file=sys.stderr)
    sys.exit(130)
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A stand-in for the driftscope command that takes no model."""
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    monkeypatch.setattr(jobs, "program", lambda: [sys.executable, str(script)])
    monkeypatch.setattr(jobs, "_jobs", {})
    yield
    for job in jobs.all_jobs():
        jobs.stop(job)
        job.process.wait(30)


def until(condition: Callable[[], bool]) -> None:
    """Wait for what the process does."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def start(folder: Path, *words: str) -> Job:
    return jobs.start(["probe", f"--out={folder}", "--", *words], folder)


def test_progress_counts_shards_between_the_lines(program: None, tmp_path: Path) -> None:
    job = start(tmp_path / "run", "x")
    until(lambda: jobs.progress(job) is not None and (tmp_path / "run/shards/clean/.new-b").is_dir())
    until(lambda: jobs.progress(job) == Progress("probing", 1, 4))
    assert job.alive
    assert job.code is None
    found = jobs.progress(job)
    assert found is not None
    assert found.share == 0.25


def test_a_folder_is_filled_by_one_job_at_a_time(program: None, tmp_path: Path) -> None:
    start(tmp_path / "run", "x")
    with pytest.raises(RunError, match="is being filled already"):
        start(tmp_path / "run", "x")


def test_a_stopped_job_ends_cleanly_and_goes_on(program: None, tmp_path: Path) -> None:
    job = start(tmp_path / "run", "x")
    until(lambda: jobs.progress(job) is not None)
    jobs.stop(job)
    until(lambda: not job.alive)
    assert job.code == 130
    assert job.error() == "interrupted: what was measured is kept"
    again = jobs.resume(job)
    assert again.arguments[:2] == ("probe", "--resume")
    until(lambda: not again.alive)
    assert again.code == 1
    assert jobs.job_of(tmp_path / "run") is again
    assert jobs.resume(again).arguments.count("--resume") == 1


def test_an_error_is_shown_as_it_is(program: None, tmp_path: Path) -> None:
    job = start(tmp_path / "run", "wrong")
    until(lambda: not job.alive)
    assert (job.code, job.error()) == (2, "error: no such folder wrong")


def test_what_cannot_be_started_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "program", lambda: [str(tmp_path / "none")])
    monkeypatch.setattr(jobs, "_jobs", {})
    with pytest.raises(RunError, match="cannot start driftscope probe: No such file"):
        jobs.start(["probe"], tmp_path / "run")


def test_jobs_run_with_the_interpreter_of_this_environment() -> None:
    assert Path(jobs.program()[0]).parent == Path(sys.executable).parent


def test_new_run_watches_stops_and_goes_on(
    app: Callable[..., AppTest], program: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(rights.FOLDERS, json.dumps([str(tmp_path)]))
    checkpoint = str(tmp_path / "weights.safetensors")
    Path(checkpoint).write_bytes(b"")
    test = app(page="new_run")
    test.text_input(key="new-checkpoint").set_value(checkpoint).run()
    test.text_input(key=f"new-out-{checkpoint}").set_value(str(tmp_path / "run")).run()
    next(button for button in test.button if button.label == "Measure").click().run()
    (job,) = jobs.all_jobs()
    until(lambda: jobs.progress(job) == Progress("probing", 1, 4))
    test.run()
    assert "1 of 4" in test.get("progress")[0].proto.text
    next(button for button in test.button if button.label == "Stop").click().run()
    until(lambda: not job.alive)
    test.run()
    assert "Stopped. Measured and kept: clean of 1 prompt." in words(test)
    (tmp_path / "run" / "run.json").write_text("{}")
    test.run()
    next(button for button in test.button if button.label == "Go on").click().run()
    (again,) = jobs.all_jobs()
    assert again is not job
    until(lambda: not again.alive)
    test.run()
    assert any(element.value == "Done." for element in test.success)
    assert test.get("page_link")[0].proto.label == "Open the run"


def test_a_failed_run_shows_its_error(app: Callable[..., AppTest], program: None, tmp_path: Path) -> None:
    test = app(page="new_run")
    job = start(tmp_path / "run", "wrong")
    until(lambda: not job.alive)
    test.run()
    (message,) = messages(test)
    assert message.startswith("error\\: no such folder wrong")
    assert message.endswith("Measured and kept\\: clean of 1 prompt.")
    assert not messages(go(test, "compare"))


@pytest.mark.slow
def test_a_real_run_is_measured_and_an_error_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "_jobs", {})
    pair = save_pair(tmp_path, prompts=2)
    out = tmp_path / "runs" / "tiny"
    done = jobs.start(["probe", "--probes=norms", *pair.arguments, f"--out={out}", "--", str(pair.checkpoint)], out)
    failed = jobs.start(["probe", f"--out={tmp_path / 'none'}", "--", str(tmp_path / "no-such")], tmp_path / "none")
    for job in (done, failed):
        job.process.wait(300)
    # Two prompts are too few for a verdict: the run is whole all the same.
    assert done.code == 2
    assert done.whole, done.lines()
    assert done.error().startswith("no verdict:")
    assert jobs.progress(done) == Progress("probing", 2, 2)
    assert Run.open(out).probes == ["clean"]
    assert jobs.folders() == [out]
    assert failed.code == 2
    assert not failed.whole
    assert "no-such" in failed.error()
