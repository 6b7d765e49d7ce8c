"""How long it takes until something is on the screen.

    python benchmarks/startup.py CHECKPOINT --target TARGET [-o startup.json]

`driftscope --help`: the whole process, wall and CPU seconds, median of several. `probe` on a warm capture: seconds from the
drafter being loaded to the first prompt's figures in the run folder. Goals: 0.3 s, and 5 s.
"""

from __future__ import annotations

import argparse
import contextlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from provenance import write_result
from rich.console import Console

from driftscope.progress import NullProgress

HELP_GOAL = 0.3
FIRST_GOAL = 5.0
REPEATS = 7


def help_cost() -> dict[str, float]:
    """Of `driftscope --help`, seconds."""
    walls, cpus = [], []
    for _ in range(REPEATS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        begun = time.perf_counter()
        code = "from driftscope.cli import main; main()"
        subprocess.run([sys.executable, "-c", code, "--help"], check=True, stdout=subprocess.DEVNULL)
        walls.append(time.perf_counter() - begun)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpus.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return {"wall": statistics.median(walls), "cpu": statistics.median(cpus), "goal": HELP_GOAL}


class _FirstDone(Exception):
    """The first prompt's rows are in the run folder."""


class Watch(NullProgress):
    """Stops the probe when the first prompt is done."""

    probing = False

    def stage(self, name: str, total: int) -> None:
        self.probing = name.startswith("prob")

    def advance(self, n: int = 1, note: str = "") -> None:
        if self.probing:
            raise _FirstDone


def first_figure(checkpoint: str, target: str | None) -> dict[str, float]:
    """Seconds from the loaded pair to the first prompt's rows, with the captures in the cache."""
    from driftscope.api import load_pair, probe_pair
    from driftscope.probes import chosen

    pair = load_pair(checkpoint, target)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        prompts = Path(__file__).resolve().parent.parent / "probes" / "prompts" / "chat.jsonl"
        settings: dict[str, Any] = {"prompts": prompts, "cache_dir": place / "cache", "max_new_tokens": 64}
        probe_pair(pair, out=place / "cold", probes=chosen(["norms"]), anchors=1, **settings)
        wall, cpu = time.perf_counter(), time.process_time()
        with contextlib.suppress(_FirstDone):
            probe_pair(pair, out=place / "warm", probes=chosen(), progress=Watch(), **settings)
        return {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu, "goal": FIRST_GOAL}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint")
    parser.add_argument("--target")
    parser.add_argument("-o", "--out", type=Path, default=Path("build/benchmarks/startup.json"))
    given = parser.parse_args()
    result = {"help": help_cost(), "first_figure": first_figure(given.checkpoint, given.target)}
    for name, cost in result.items():
        Console().print(f"{name}: {cost['wall']:.2f} s, {cost['cpu']:.2f} CPU s (goal {cost['goal']} s)")
    write_result(given.out, result)


if __name__ == "__main__":
    main()
