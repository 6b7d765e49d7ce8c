"""Measurements as processes of their own: started, watched, stopped and gone on with from the pages."""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from driftscope.errors import RunError

_PROGRESS = re.compile(r"(?P<stage>[^:\n]+): (?P<done>\d+)/(?P<total>\d+)\b.*")
_BAR = re.compile(r"\d+%\|.*\| \d+/\d+ \[")
"""A bar of a library that draws one whether or not there is a terminal."""
_PROBING = "probing"
_MOST_LINES = 400

# A server that was started in the background ignores SIGINT, and what it starts would do so too and could not be stopped.
_PROGRAM = (
    "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); sys.argv[0] = 'driftscope'; "
    "from driftscope.cli import main; main()"
)


@dataclass
class Job:
    """One process. `folder` is what it fills: a run folder, or the file that holds its JSON."""

    arguments: tuple[str, ...]
    folder: Path
    log: Path
    process: subprocess.Popen[bytes] = field(repr=False)
    started: float
    stopping: bool = False

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    @property
    def code(self) -> int | None:
        """Exit code; None while it runs."""
        return self.process.poll()

    @property
    def whole(self) -> bool:
        """Whether it came to its end: 0 and 1 are without and with findings, 2 can be a run too small for a verdict."""
        return self.code in (0, 1) or (self.code == 2 and self.error().startswith("no verdict:"))

    @property
    def command(self) -> str:
        """As one would type it."""
        return shlex.join(["driftscope", *self.arguments])

    def lines(self) -> list[str]:
        """What it has told so far, the last lines."""
        try:
            text = self.log.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return []
        return [line for line in text.splitlines() if line.strip() and not _BAR.search(line)][-_MOST_LINES:]

    def error(self) -> str:
        """The line with which it failed."""
        told = [line for line in self.lines() if line.startswith(("error:", "no verdict:", "interrupted:"))]
        return told[-1] if told else ""


@dataclass(frozen=True)
class Progress:
    """How far a stage is."""

    stage: str
    done: int
    total: int

    @property
    def share(self) -> float:
        return min(1.0, self.done / self.total) if self.total else 0.0


_jobs: dict[Path, Job] = {}
_lock = threading.Lock()


def all_jobs() -> list[Job]:
    """Newest first."""
    return sorted(_jobs.values(), key=lambda job: -job.started)


def job_of(folder: Path) -> Job | None:
    """The last job that filled this folder."""
    return _jobs.get(folder.resolve())


def folders() -> list[Path]:
    """Run folders that were filled from here and are there."""
    return [job.folder for job in _jobs.values() if (job.folder / "run.json").is_file()]


def start(arguments: Sequence[str], folder: Path, *, stdout: Path | None = None) -> Job:
    """Run `driftscope *arguments`, which fills `folder`. Raises RunError while another one does, or if it cannot start.

    `stdout` is the file for what the command prints; without one it goes to the log as well.
    """
    place = folder.resolve()
    with _lock:
        if place in _jobs and _jobs[place].alive:
            raise RunError(f"{folder} is being filled already: stop that first, or choose another folder")
        handle, name = tempfile.mkstemp(prefix="driftscope-", suffix=".log")
        log = Path(name)
        # Lines instead of bars, and nothing that asks.
        environment = {**os.environ, "TERM": "dumb", "NO_COLOR": "1", "PYTHONUNBUFFERED": "1"}
        try:
            with os.fdopen(handle, "wb") as errors, contextlib.ExitStack() as stack:
                out = errors if stdout is None else stack.enter_context(_writable(stdout))
                process = subprocess.Popen(
                    [*program(), *arguments], stdin=subprocess.DEVNULL, stdout=out, stderr=errors, env=environment
                )
        except OSError as error:
            raise RunError(f"cannot start driftscope {arguments[0]}: {error.strerror or error}") from error
        job = Job(tuple(arguments), folder, log, process, time.time())
        _jobs[place] = job
    return job


def stop(job: Job) -> None:
    """Ask it to stop: what was measured is kept."""
    if job.alive:
        job.stopping = True
        job.process.send_signal(signal.SIGINT if os.name == "posix" else signal.SIGTERM)


def resume(job: Job) -> Job:
    """Go on with a run that was stopped."""
    words = list(job.arguments)
    if "--resume" not in words:
        words.insert(1, "--resume")
    return start(words, job.folder)


def progress(job: Job) -> Progress | None:
    """How far it is; None before its first stage."""
    found = [match for line in job.lines() if (match := _PROGRESS.fullmatch(line.strip()))]
    if not found:
        return None
    stage, done, total = found[-1]["stage"], int(found[-1]["done"]), int(found[-1]["total"])
    # The log has a line every few seconds; shards are there as soon as they are measured.
    if stage == _PROBING:
        done = max(done, min(total, sum(shards(job.folder).values())))
    return Progress(stage, done, total)


def shards(folder: Path) -> dict[str, int]:
    """Prompts that are measured, by the name of the shard: `clean`, or that of a probe."""
    held = sorted(part for part in (folder / "shards").glob("*") if part.is_dir())
    return {part.name: sum(not path.name.startswith(".") for path in part.iterdir()) for part in held}


def program() -> list[str]:
    """driftscope of this environment, as a command."""
    return [sys.executable, "-c", _PROGRAM]


@contextlib.contextmanager
def _writable(path: Path) -> Iterator[BinaryIO]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as stream:
        yield stream


@atexit.register
def _stop_all() -> None:
    for job in _jobs.values():
        with contextlib.suppress(OSError):
            stop(job)
