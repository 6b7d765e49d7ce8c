"""Fuzz: files that lie, given to the readers of checkpoints, captures, engines' dumps, runs, comparisons and reports.

    python benchmarks/fuzz.py [--inputs 10000] [--seed 0] [--seconds 500] [-o benchmarks/results/fuzz.json]

A reader may read a file or refuse it in one line. It may not crash, hang, run what a file holds, leave the folder, hand out
a capture that is not the stored one, or take more memory than twice the file's size and 100 MiB. Inputs are made and read
in a process of their own with an address space of limited size; memory is the peak of its resident set. An input is decided
by seed, number and `--readers` alone: `--only NUMBER` repeats one and shows the traceback. With `--seconds` it stops after
that time and goes on when it is called again with the same `-o`.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import re
import resource
import select
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parent.parent)]

from hostile import MAKERS, MARK, Stock  # noqa: E402
from hostile.readers import READ, sound  # noqa: E402
from provenance import write_result  # noqa: E402

MIB = 2**20
SPARE = 100 * MIB
ADDRESS_SPACE = 4096 * MIB
"""On top of what the process has mapped once everything is imported."""
CPU_SECONDS, WALL_SECONDS = 10.0, 180.0
"""Of one input; beyond them it hangs. The wall clock is generous, for the machine may be busy with other things."""
TURNS = {"checkpoint": 14, "capture": 5, "folder": 8, "dump": 12, "prompts": 3, "run": 9, "report": 1}
"""Inputs that each reader gets in a turn; a report takes seconds."""
_FORBIDDEN = (
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "os.fork",
    "subprocess.Popen",
    "pickle.find_class",
    "socket.connect",
)


class Watch:
    """Notes what an audited interpreter does while a file is read."""

    def __init__(self) -> None:
        self.on = False
        self.seen: list[str] = []
        sys.addaudithook(self._hook)

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.on and event in _FORBIDDEN:
            self.seen.append(event)


def reader_of(number: int, readers: Sequence[str] = tuple(TURNS)) -> str:
    """The reader that gets an input, where only these take turns."""
    # Spread, so that a few inputs hold something of each.
    order = sorted((place / TURNS[name], name) for name in readers for place in range(TURNS[name]))
    return order[number % len(order)][1]


def status(name: str) -> int:
    """A field of /proc/self/status in bytes."""
    match = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert match is not None
    return int(match[1]) * 1024


def size_of(folder: Path) -> int:
    """Bytes that the files of a case take up, holes not counted."""
    found = (os.lstat(Path(place) / name) for place, _, names in os.walk(folder) for name in names)
    return sum(min(entry.st_size, entry.st_blocks * 512) for entry in found)


def attempt(number: int, seed: int, reader: str, folder: Path, stock: Stock, watch: Watch) -> dict[str, Any]:
    """Make one input for a reader, have it read and judge what happened."""
    draw = random.Random(f"{seed}:{number}")
    name, make = draw.choice(MAKERS[reader])
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    result: dict[str, Any] = {"number": number, "reader": reader, "kind": name, "outcome": "read", "problem": None}
    begun = time.process_time()
    path = make(folder, draw, stock)
    result["making"] = round(time.process_time() - begun, 3)
    size = size_of(folder)
    Path("/proc/self/clear_refs").write_text("5")
    before, cpu = status("VmRSS"), time.process_time()
    watch.seen, watch.on = [], True
    try:
        if READ[reader](path, stock):
            result["outcome"] = "refused"
    except AssertionError as error:
        result["problem"] = str(error)
    except BaseException as error:
        result["problem"] = f"{type(error).__name__}: {str(error).splitlines()[0][:200] if str(error) else ''}"
        result["traceback"] = traceback.format_exc()
    finally:
        watch.on = False
    result["cpu"] = round(time.process_time() - cpu, 3)
    result["memory"] = max(0, status("VmHWM") - before)
    result["share"] = round(result["memory"] / (2 * size + SPARE), 3)
    if watch.seen or (folder / MARK).exists():
        result["problem"] = f"code ran: {', '.join(watch.seen) or MARK}"
    elif result["problem"] is None and result["share"] > 1:
        result["problem"] = f"{result['memory'] / MIB:.0f} MiB of memory for {size / MIB:.1f} MiB of files"
    elif result["problem"] is None and result["cpu"] > CPU_SECONDS:
        result["problem"] = f"hangs: {result['cpu']} s of CPU"
    return result


def work(numbers: Sequence[int], seed: int, readers: Sequence[str], place: Path) -> None:
    """The process that reads: one line before an input and one after it."""
    stock = Stock.build(place / "stock")
    watch = Watch()
    for reader in readers:
        for path in sound(reader, stock, place):
            # What is imported on first use is not the file's memory.
            said = READ[reader](path, stock)
            assert said == "", f"the sound {reader} is refused: {said}"
    limit = status("VmSize") + ADDRESS_SPACE
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    for number in numbers:
        print(json.dumps({"start": number}), flush=True)
        found = attempt(number, seed, reader_of(number, readers), place / "case", stock, watch)
        print(json.dumps(found), flush=True)


def fuzz(
    inputs: int,
    seed: int,
    readers: Sequence[str] = tuple(TURNS),
    *,
    first: int = 0,
    tell: Callable[[str], None] = lambda line: None,
) -> Iterator[dict[str, Any]]:
    """Results of the inputs `first` .. `inputs` - 1. A process that dies or hangs costs the input it was at."""
    at = first
    while at < inputs:
        with tempfile.TemporaryDirectory() as place:
            command = [sys.executable, __file__, "--worker", place, "--inputs", str(inputs), "--first", str(at)]
            command += ["--seed", str(seed), "--readers", ",".join(readers)]
            errors = Path(place) / "errors"
            with errors.open("wb") as stderr:
                process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr)
            assert process.stdout is not None
            begun, line = None, None
            try:
                while ready := select.select([process.stdout], [], [], WALL_SECONDS)[0]:
                    line = process.stdout.readline()
                    if not line:
                        break
                    told = json.loads(line)
                    begun = told.get("start", None)
                    if begun is None:
                        at = told["number"] + 1
                        if told["problem"]:
                            tell(f"{told['number']} {told['reader']} {told['kind']}: {told['problem']}")
                        elif at % 500 == 0:
                            tell(f"{at} of {inputs}")
                        yield told
            finally:
                process.kill()
                code = process.wait()
            said = errors.read_text(errors="replace").strip().splitlines() or [""]
            if begun is None and at < inputs:
                raise RuntimeError(f"the reading process ended with {code}: {said[-1]}")
            if begun is not None:
                what = f"the process died ({code}) {said[-1][:200]}" if ready else f"no answer in {WALL_SECONDS:g} s"
                tell(f"{begun}: {what}")
                yield {
                    "number": begun,
                    "reader": reader_of(begun, readers),
                    "kind": "",
                    "outcome": "",
                    "problem": what,
                }
                at = begun + 1


def summary(results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Counts and extremes over all inputs."""
    kinds = Counter((r["reader"], r["kind"], r["outcome"]) for r in results)
    return {
        "inputs": len(results),
        "by_reader": dict(Counter(r["reader"] for r in results)),
        "cpu_seconds": round(sum(r.get("making", 0) + r.get("cpu", 0) for r in results), 1),
        "by_kind": {" / ".join(key): count for key, count in sorted(kinds.items())},
        "problems": [{k: r[k] for k in ("number", "reader", "kind", "problem")} for r in results if r["problem"]],
        "largest_memory_mib": round(max(r.get("memory", 0) for r in results) / MIB, 1),
        "largest_share_of_allowed_memory": _most(results, "share"),
        "longest_cpu_seconds": _most(results, "cpu"),
    }


def _most(results: Sequence[dict[str, Any]], what: str) -> dict[str, Any]:
    found = max(results, key=lambda r: r.get(what, 0))
    return {"value": found.get(what, 0), "number": found["number"], "kind": f"{found['reader']} / {found['kind']}"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--readers", default=",".join(TURNS), help="only these take turns")
    parser.add_argument("--only", type=int, help="repeat one input")
    parser.add_argument("--seconds", type=float, default=math.inf, help="stop then; call again to go on")
    parser.add_argument("-o", "--out", type=Path)
    parser.add_argument("--first", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    readers = [name for name in TURNS if name in given.readers.split(",")]
    if given.worker:
        work(range(given.first, given.inputs), given.seed, readers, given.worker)
        return 0
    if given.only is not None:
        with tempfile.TemporaryDirectory() as place:
            stock = Stock.build(Path(place) / "stock")
            reader = reader_of(given.only, readers)
            found = attempt(given.only, given.seed, reader, Path(place) / "case", stock, Watch())
        print(found.pop("traceback", ""), json.dumps(found, indent=1))
        return bool(found["problem"])
    kept = _Kept(given.out, {"seed": given.seed, "readers": readers})
    end = time.monotonic() + given.seconds
    for found in fuzz(given.inputs, given.seed, readers, first=kept.first, tell=print):
        kept.add(found)
        if time.monotonic() > end:
            break
    if kept.first < given.inputs:
        print(f"{kept.first} of {given.inputs}: call again to go on")
        return 0
    result = {**kept.about, **summary(kept.results)}
    print(json.dumps(result, indent=1))
    if given.out:
        write_result(given.out, result, seeds=[given.seed])
        kept.file.unlink()
    return bool(result["problems"])


class _Kept:
    """Results so far, in a file beside the one that is to be written, from which another call goes on."""

    def __init__(self, out: Path | None, about: dict[str, Any]) -> None:
        self.about, self.results = about, []
        self.file = Path(os.devnull) if out is None else out.with_suffix(".part.jsonl")
        if out is None:
            return
        out.parent.mkdir(parents=True, exist_ok=True)
        lines = self.file.read_text().splitlines() if self.file.is_file() else []
        if lines and json.loads(lines[0]) == about:
            self.results = [json.loads(line) for line in lines[1:]]
        else:
            self.file.write_text(json.dumps(about) + "\n")

    @property
    def first(self) -> int:
        """The first input that is still to be read."""
        return self.results[-1]["number"] + 1 if self.results else 0

    def add(self, found: dict[str, Any]) -> None:
        self.results.append(found)
        with self.file.open("a") as stream:
            stream.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    sys.exit(main())
