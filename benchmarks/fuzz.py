"""Fuzz: files that lie, given to the readers of checkpoints, captures and runs.

    python benchmarks/fuzz.py [--inputs 10000] [--seed 0] [-o benchmarks/results/fuzz.json]

A reader may read a file or refuse it in one line. It may not crash, hang, run what a file holds, leave the folder, hand out
a capture that is not the stored one, or take more memory than twice the file's size and 100 MiB. Inputs are made and read
in a process of their own with an address space of limited size; memory is the peak of its resident set. An input is decided
by seed and number alone: `--only NUMBER` repeats one and shows the traceback.
"""

from __future__ import annotations

import argparse
import json
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
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from hostile import KEY, MAKERS, MARK, PLANTED, Stock
from safetensors.torch import load_file

from driftscope.cache import CaptureCache
from driftscope.checkpoints import inspect_checkpoint, open_checkpoint
from driftscope.errors import DriftscopeError
from driftscope.run import Run
from driftscope.schema import TABLES

MIB = 2**20
SPARE = 100 * MIB
ADDRESS_SPACE = 4096 * MIB
"""On top of what the process has mapped once everything is imported."""
CPU_SECONDS, WALL_SECONDS = 10.0, 180.0
"""Of one input; beyond them it hangs. The wall clock is generous, for the machine may be busy with other things."""
LONGEST_LINE = 1200
READERS = tuple(MAKERS)
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


def read_checkpoint(path: Path, stock: Stock) -> str:
    """What the reader said: empty, or a line per refusal."""
    said = []
    for call in (inspect_checkpoint, open_checkpoint):
        try:
            found: Any = call(path)
            held = json.dumps(found.to_dict()) if hasattr(found, "to_dict") else str(dict(found.names))
            assert PLANTED not in held, "a tensor from outside the folder was read"
        except DriftscopeError as error:
            said.append(str(error))
    return checked(said)


def read_capture(path: Path, stock: Stock) -> str:
    said = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            cache = CaptureCache(path)
            cache.entries()
            found = cache.read(KEY, (1, 2))
        except DriftscopeError as error:
            said.append(str(error))
            found = None
    if found is not None:
        folder = stock.capture / KEY.target / KEY.capture
        whole = load_file(folder / "record.safetensors")
        same = found.tensors.keys() == whole.keys() and all(found.tensors[n].equal(whole[n]) for n in whole)
        for b, state in found.boundaries.items():
            same = same and state.equal(load_file(folder / f"boundary_{b}.safetensors")["state"])
        assert same, "a damaged capture was handed out"
    return checked(said)


def read_run(path: Path, stock: Stock) -> str:
    said = []
    try:
        run = Run.open(path)
        repr(run)
        for name in TABLES:
            try:
                run.table(name)
            except DriftscopeError as error:
                said.append(str(error))
        if not said:
            run.summary()
    except DriftscopeError as error:
        said.append(str(error))
    return checked(said)


def checked(said: Sequence[str]) -> str:
    for line in said:
        assert "\n" not in line, f"a message of several lines: {line[:200]!r}"
        assert len(line) < LONGEST_LINE, f"a message of {len(line)} characters: {line[:200]}"
    return "\n".join(said)


READ: dict[str, Callable[[Path, Stock], str]] = {
    "checkpoint": read_checkpoint,
    "capture": read_capture,
    "run": read_run,
}


def status(name: str) -> int:
    """A field of /proc/self/status in bytes."""
    match = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert match is not None
    return int(match[1]) * 1024


def size_of(folder: Path) -> int:
    """Bytes that the files of a case take up, holes not counted."""
    found = (os.lstat(Path(place) / name) for place, _, names in os.walk(folder) for name in names)
    return sum(min(entry.st_size, entry.st_blocks * 512) for entry in found)


def attempt(number: int, seed: int, folder: Path, stock: Stock, watch: Watch) -> dict[str, Any]:
    """Make one input, read it and judge what happened."""
    draw = random.Random(f"{seed}:{number}")
    reader = READERS[number % len(READERS)]
    name, make = draw.choice(MAKERS[reader])
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    result: dict[str, Any] = {"number": number, "reader": reader, "kind": name, "outcome": "read", "problem": None}
    path = make(folder, draw, stock)
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


def work(numbers: Sequence[int], seed: int, place: Path) -> None:
    """The process that reads: one line before an input and one after it."""
    stock = Stock.build(place / "stock")
    watch = Watch()
    for reader, path in (("checkpoint", place / "stock" / "sound"), ("capture", stock.capture), ("run", stock.run)):
        if reader == "checkpoint":
            path.mkdir()
            for file, content in stock.checkpoint.items():
                (path / file).write_bytes(content)
        # What is imported on first use is not the file's memory.
        assert READ[reader](path, stock) == "", f"the sound {reader} is refused"
    limit = status("VmSize") + ADDRESS_SPACE
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    for number in numbers:
        print(json.dumps({"start": number}), flush=True)
        print(json.dumps(attempt(number, seed, place / "case", stock, watch)), flush=True)


def fuzz(inputs: int, seed: int, *, tell: Callable[[str], None] = lambda line: None) -> list[dict[str, Any]]:
    """Results of the inputs 0 .. `inputs` - 1. A process that dies or hangs costs the input it was at."""
    results: list[dict[str, Any]] = []
    at = 0
    while at < inputs:
        with tempfile.TemporaryDirectory() as place:
            command = [sys.executable, __file__, "--worker", place, "--inputs", str(inputs), "--first", str(at)]
            process = subprocess.Popen([*command, "--seed", str(seed)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            assert process.stdout is not None
            assert process.stderr is not None
            begun = None
            while True:
                ready = select.select([process.stdout], [], [], WALL_SECONDS)[0]
                line = process.stdout.readline() if ready else None
                if not line:
                    break
                told = json.loads(line)
                begun = told.get("start", None)
                if begun is None:
                    results.append(told)
                    at = told["number"] + 1
                    if told["problem"]:
                        tell(f"{told['number']} {told['reader']} {told['kind']}: {told['problem']}")
                    elif at % 500 == 0:
                        tell(f"{at} of {inputs}")
            process.kill()
            errors = process.stderr.read().decode(errors="replace")
            code = process.wait()
            if begun is None and at < inputs:
                raise RuntimeError(f"the reading process ended with {code}: {errors[-2000:]}")
            if begun is not None:
                last = (errors.strip().splitlines() or [""])[-1]
                what = f"no answer in {WALL_SECONDS:g} s" if line is None else f"the process died ({code}) {last[:200]}"
                results.append(
                    {"number": begun, "reader": READERS[begun % 3], "kind": "", "outcome": "", "problem": what}
                )
                tell(f"{begun}: {what}")
                at = begun + 1
    return results


def summary(results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Counts and extremes over all inputs."""
    kinds = Counter((r["reader"], r["kind"], r["outcome"]) for r in results)
    return {
        "inputs": len(results),
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
    parser.add_argument("--only", type=int, help="repeat one input")
    parser.add_argument("-o", "--out", type=Path)
    parser.add_argument("--first", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        work(range(given.first, given.inputs), given.seed, given.worker)
        return 0
    if given.only is not None:
        with tempfile.TemporaryDirectory() as place:
            stock = Stock.build(Path(place) / "stock")
            found = attempt(given.only, given.seed, Path(place) / "case", stock, Watch())
        print(found.pop("traceback", ""), json.dumps(found, indent=1))
        return bool(found["problem"])
    used = time.process_time()
    results = fuzz(given.inputs, given.seed, tell=print)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    result = {"seed": given.seed, **summary(results)}
    result["cpu_seconds"] = round(time.process_time() - used + children.ru_utime + children.ru_stime, 1)
    print(json.dumps(result, indent=1))
    if given.out:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(json.dumps(result, indent=1) + "\n")
    return bool(result["problems"])


if __name__ == "__main__":
    sys.exit(main())
