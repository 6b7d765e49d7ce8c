"""How long it takes until something is on the screen.

    python benchmarks/startup.py CHECKPOINT --target TARGET [-o startup.json]

`driftscope --help`: the whole process, wall and CPU seconds, median of several. `probe` on a warm capture: seconds from the
drafter being loaded to the first prompt's figures in the run folder. Goals: 0.3 s, and 5 s.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console

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


class Watch:
    """Notes when the first prompt is done; everything else passes by."""

    def __init__(self) -> None:
        self.first: tuple[float, float] | None = None

    def message(self, text: str) -> None:
        pass

    def stage(self, name: str, total: int) -> None:
        self.probing = name.startswith("prob")

    def advance(self, count: int = 1, detail: str = "") -> None:
        if self.probing and self.first is None:
            self.first = time.perf_counter(), time.process_time()


def first_figure(checkpoint: str, target: str | None) -> dict[str, float]:
    """Seconds from the loaded pair to the first prompt's rows, with the captures in the cache."""
    from driftscope.api import load_pair, probe_pair
    from driftscope.probes import chosen

    pair = load_pair(checkpoint, target)
    with tempfile.TemporaryDirectory() as folder:
        settings: dict[str, Any] = {"probes": chosen(), "cache_dir": Path(folder) / "cache", "max_new_tokens": 64}
        probe_pair(pair, out=Path(folder) / "cold", **{**settings, "probes": chosen(["norms"])}, anchors=1)
        watch = Watch()
        wall, cpu = time.perf_counter(), time.process_time()
        probe_pair(pair, out=Path(folder) / "warm", **settings, progress=watch)  # type: ignore[arg-type]
        assert watch.first is not None
        return {"wall": watch.first[0] - wall, "cpu": watch.first[1] - cpu, "goal": FIRST_GOAL}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint")
    parser.add_argument("--target")
    parser.add_argument("-o", "--out", type=Path, default=Path("build/benchmarks/startup.json"))
    given = parser.parse_args()
    result = {"help": help_cost(), "first_figure": first_figure(given.checkpoint, given.target)}
    for name, cost in result.items():
        Console().print(f"{name}: {cost['wall']:.2f} s, {cost['cpu']:.2f} CPU s (goal {cost['goal']} s)")
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
