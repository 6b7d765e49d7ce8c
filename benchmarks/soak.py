"""Soak: a long probe on a tiny pair, killed with SIGKILL every few seconds and resumed, ends like one left alone.

    python benchmarks/soak.py [--prompts 1000] [--window 8] [--folder F --seconds 500] [-o benchmarks/results/soak.json]

Each start is killed after a random time of up to `--window` seconds (longer while starts come to nothing). The rows of
every table, the captures and run.json must equal those of an undisturbed run, bit for bit, and what the killed processes
left half-written must be gone once it is old enough to be nobody's. With `--seconds` it stops after about that time and
goes on when it is called again with the same `--folder`.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import math
import multiprocessing
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pandas as pd
from safetensors.torch import load_file

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from provenance import write_result  # noqa: E402

from driftscope.errors import DriftscopeError  # noqa: E402
from driftscope.runs.run import Run  # noqa: E402
from driftscope.runs.schema import tables as all_tables  # noqa: E402
from tests.tiny_pair import TinyPair, save_pair, tiny_pair, write_prompts  # noqa: E402

MAX_STARTS = 2000
SETTINGS = {"max_new_tokens": 24, "depth": 3, "horizon": 4}
PROBES = ("norms", "attention", "acceptance")
"""They share one shard, `clean`."""


class Process(Protocol):
    """A started probe. `poll` is None while it runs, else its exit code."""

    def poll(self) -> int | None: ...
    def kill(self) -> None: ...
    def wait(self) -> int: ...


Start = Callable[[Sequence[str]], Process]
"""Starts `driftscope` with arguments."""


@dataclass
class Outcome:
    """What was done to the run, and what came of it. `problems` is empty when it ended as it should."""

    prompts: int
    starts: int = 0
    kills: int = 0
    barren: int = 0
    """Starts that were killed before they had added anything."""
    killed_while: dict[str, int] = field(default_factory=dict)
    captures: int = 0
    rows: dict[str, int] = field(default_factory=dict)
    leftovers: int = 0
    """Half-written files and folders that the kills left."""
    problems: list[str] = field(default_factory=list)


def command_line(arguments: Sequence[str]) -> Process:
    """The command line in a process of its own."""
    program = [sys.executable, "-c", "from driftscope.cli import main; main()", *arguments]
    return subprocess.Popen(program, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


class Forked:
    """The command line in a fork of a process that has everything imported: for many short starts."""

    def __init__(self, arguments: Sequence[str]) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(
            ["driftscope.cli", "driftscope.api", "driftscope.chain.pair", "nnsight", "transformers"]
        )
        self._process = context.Process(target=_quietly, args=(list(arguments),))
        self._process.start()

    def poll(self) -> int | None:
        return self._process.exitcode

    def kill(self) -> None:
        self._process.kill()

    def wait(self) -> int:
        self._process.join()
        assert self._process.exitcode is not None
        return self._process.exitcode


def _quietly(arguments: list[str]) -> None:
    from driftscope.cli import app

    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        app(arguments)


def soak(
    folder: Path,
    prompts: int,
    window: float,
    *,
    start: Start = command_line,
    seed: int = 0,
    seconds: float = math.inf,
) -> Outcome | None:
    """Run the disturbed and the undisturbed probe below `folder` and compare them; None where the time was not enough."""
    end, known = time.monotonic() + seconds, folder / "soak.json"
    draw, outcome = random.Random(seed), Outcome(prompts)
    if known.is_file():
        pair, outcome = tiny_pair(folder / "pair"), Outcome(**json.loads(known.read_text()))
        if outcome.rows:
            return outcome
        draw = random.Random(f"{seed}:{outcome.starts}")
    else:
        pair = save_pair(folder / "pair")
        texts = (" ".join(f"w{draw.randrange(60)}" for _ in range(9 + n % 20)) for n in range(prompts))
        write_prompts(pair.prompts, *texts)
        start(_arguments(pair, folder / "calm")).wait()
    finished = _disturbed(pair, folder / "killed", draw, window, start, outcome, end)
    known.write_text(json.dumps(vars(outcome)))
    if finished and not outcome.problems:
        _compare(folder / "calm", folder / "killed", outcome)
        _swept(pair, folder / "killed", start, outcome)
    known.write_text(json.dumps(vars(outcome)))
    return outcome if finished else None


def _arguments(pair: TinyPair, place: Path, *more: str) -> list[str]:
    place.mkdir(exist_ok=True)
    options = {"target": pair.target, "prompts": pair.prompts, "cache_dir": place / "cache", "probes": ",".join(PROBES)}
    words = [
        word for name, value in (options | SETTINGS).items() for word in (f"--{name.replace('_', '-')}", str(value))
    ]
    return ["probe", str(pair.checkpoint), *words, "-o", str(place / "run"), "--json", *more]


def _disturbed(
    pair: TinyPair, place: Path, draw: random.Random, window: float, start: Start, outcome: Outcome, finish: float
) -> bool:
    """Whether it came to an end before `finish`."""
    patience, held = window, _progress(place)
    while outcome.starts < MAX_STARTS and time.monotonic() < finish:
        outcome.starts += 1
        process = start(_arguments(pair, place, "--resume"))
        end = time.monotonic() + draw.uniform(0, patience)
        while process.poll() is None and time.monotonic() < end:
            time.sleep(0.005)
        code = process.poll()
        if code is None:
            process.kill()
            code = process.wait()
        if code != -signal.SIGKILL:
            # Findings and missing intervals have exit codes too: whether it ended well is seen in what it left.
            return True
        outcome.kills += 1
        now = _progress(place)
        stage = "probing" if now[1] else "capturing" if now[0] else "starting"
        outcome.killed_while[stage] = outcome.killed_while.get(stage, 0) + 1
        outcome.barren += now == held
        # About every second start comes to something, however slow the machine is at starting.
        patience = max(window, patience * (1.5 if now == held else 0.7))
        held = now
    if outcome.starts == MAX_STARTS:
        outcome.problems.append(f"not finished after {MAX_STARTS} starts")
    return outcome.starts == MAX_STARTS


def _progress(place: Path) -> tuple[int, int]:
    """Captures and shards there."""
    captures = sum(1 for _ in (place / "cache").glob("*/*/record.safetensors"))
    return captures, sum(1 for _ in (place / "run" / "shards").glob("*/[!.]*"))


def _compare(calm: Path, killed: Path, outcome: Outcome) -> None:
    try:
        one, other = Run.open(calm / "run"), Run.open(killed / "run")
    except DriftscopeError as error:
        outcome.problems.append(str(error))
        return
    for what, run in (("undisturbed", one), ("disturbed", other)):
        absent = [p.id for p in run.info.prompts if not run.done("clean", p.id)]
        if absent or not run.info.prompts:
            outcome.problems.append(f"the {what} run lacks {len(absent)} shards")
    for name in all_tables():
        try:
            left, right = one.table(name), other.table(name)
            outcome.rows[name] = len(left)
            pd.testing.assert_frame_equal(left, right, check_exact=True)
        except DriftscopeError as error:
            outcome.problems.append(str(error))
        except AssertionError as error:
            outcome.problems.append(f"table {name} differs: {str(error).splitlines()[0]}")
    facts = [run.info.model_dump(mode="json", exclude={"provenance"}) for run in (one, other)]
    if facts[0] != facts[1]:
        outcome.problems.append("run.json differs: " + ", ".join(k for k in facts[0] if facts[0][k] != facts[1][k]))
    files = sorted(path.relative_to(calm / "cache") for path in (calm / "cache").glob("*/*/[!.]*.safetensors"))
    outcome.captures = sum(path.name == "record.safetensors" for path in files)
    if not outcome.captures:
        outcome.problems.append("there are no captures to compare")
    for path in files:
        tensors = load_file(calm / "cache" / path)
        again = load_file(killed / "cache" / path) if (killed / "cache" / path).is_file() else {}
        if tensors.keys() != again.keys() or any(not tensors[name].equal(again[name]) for name in tensors):
            outcome.problems.append(f"capture {path} differs")


def half_written(place: Path) -> list[Path]:
    """What killed writers left, wherever they write."""
    return [path for path in place.rglob("*") if path.name.startswith((".new-", ".tmp-"))]


def _swept(pair: TinyPair, place: Path, start: Start, outcome: Outcome) -> None:
    """Leftovers that are old enough to be nobody's are gone after the next start."""
    left = half_written(place)
    outcome.leftovers = len(left)
    old = time.time() - 2 * 3600
    for path in left:
        os.utime(path, (old, old))
    start(_arguments(pair, place, "--resume")).wait()
    # One prompt more, so that captures are written again; into another run, since this one has its prompts.
    with pair.prompts.open("a") as stream:
        stream.write(json.dumps({"text": " ".join(f"w{n}" for n in range(30))}) + "\n")
    words = _arguments(pair, place)
    words[words.index(str(place / "run"))] = str(place / "another")
    start(words).wait()
    if remain := half_written(place):
        outcome.problems.append(f"{len(remain)} of {len(left)} leftovers of killed writers stay, first {remain[0]}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompts", type=int, default=1000)
    parser.add_argument("--window", type=float, default=8.0, help="longest life of a start, in seconds")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="keep the runs there")
    parser.add_argument("--seconds", type=float, default=math.inf, help="stop then; call again with --folder to go on")
    parser.add_argument("-o", "--out", type=Path)
    given = parser.parse_args()
    # A program that was started and not imported can be killed in its imports too.
    with contextlib.ExitStack() as stack:
        folder = given.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        outcome = soak(folder, given.prompts, given.window, seed=given.seed, seconds=given.seconds)
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent = folder / "cpu_seconds"
        before = float(spent.read_text()) if spent.is_file() else 0.0
        cpu = round(before + used.ru_utime + used.ru_stime, 1)
        spent.write_text(str(cpu))
    if outcome is None:
        print(f"{folder}: not finished; call again to go on")
        return 0
    result: dict[str, Any] = {**vars(outcome), "cpu_seconds": cpu}
    print(json.dumps(result, indent=1))
    if given.out:
        write_result(given.out, result, seeds=[given.seed])
    return bool(outcome.problems)


if __name__ == "__main__":
    sys.exit(main())
