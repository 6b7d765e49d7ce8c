"""What watching a training costs: seconds of one `drift_metrics` on a pair, on what a training script would use.

    python benchmarks/training_cost.py CHECKPOINT --target TARGET [--threads 2] [--repeats 5]

CHECKPOINT stands for the module in training: its state dict is what is measured. The capture is made once and not part of
the cost; its own time is told beside it.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from driftscope.checkpoints.reading.files import open_source
from driftscope.errors import DriftscopeError
from driftscope.integrations import drift_metrics, training_capture
from driftscope.target.model import load_target

GOAL = 2.0
"""Seconds, for the example pair on two cores."""


def seconds(action: Callable[[], Any]) -> tuple[float, float, Any]:
    """Wall and CPU seconds (over all threads), and what came out."""
    wall, cpu = time.perf_counter(), time.process_time()
    made = action()
    return time.perf_counter() - wall, time.process_time() - cpu, made


def benchmark(checkpoint: str, target: str, *, threads: int, repeats: int, device: str) -> dict[str, Any]:
    torch.set_num_threads(threads)
    source = open_source(checkpoint)
    loaded = load_target(target, device=device)
    state = {name: source.load(name).to(loaded.device) for name in source.infos}
    with tempfile.TemporaryDirectory() as cache:
        cold, _, held = seconds(lambda: training_capture(loaded, state, config=source.config, cache_dir=cache))
        warm, _, _ = seconds(lambda: training_capture(loaded, state, config=source.config, cache_dir=cache))
    result: dict[str, Any] = {"device": str(loaded.device), "threads": threads, "machine": platform.processor()}
    result |= {"prompts": len(held.captures), "depth": held.settings.depth, "anchors": held.settings.anchors}
    result |= {"capture_seconds": cold, "capture_seconds_when_cached": warm}
    for name, options in (("all", {}), ("without_noise", {"alphas": ()})):

        def measure(options: dict[str, Any] = options) -> dict[str, float]:
            return drift_metrics(state, held, config=source.config, **options)

        first, _, metrics = seconds(measure)
        walls, cpus, _ = zip(*(seconds(measure) for _ in range(repeats)), strict=True)
        result[name] = {
            "first": first,
            "wall": statistics.median(walls),
            "cpu": statistics.median(cpus),
            "walls": walls,
            "metrics": metrics,
        }
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint")
    parser.add_argument("--target", required=True)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("-o", "--out", type=Path, default=Path("build/benchmarks/training_cost.json"))
    given = parser.parse_args()
    if min(given.threads, given.repeats) < 1:
        parser.error("--threads and --repeats must be at least 1")
    try:
        result = benchmark(
            given.checkpoint, given.target, threads=given.threads, repeats=given.repeats, device=given.device
        )
    except DriftscopeError as error:
        sys.exit(f"error: {error}")
    print(
        f"{result['prompts']} prompts of at most {result['anchors']} anchors, {result['depth']} steps, {result['device']}, "
        f"{result['threads']} threads"
    )
    print(
        f"capture, once: {result['capture_seconds']:.1f} s; from the cache {result['capture_seconds_when_cached']:.1f} s"
    )
    for name in ("all", "without_noise"):
        cost = result[name]
        print(
            f"{name.replace('_', ' ')}: {cost['wall']:.2f} s an evaluation (the first {cost['first']:.2f} s), "
            f"{cost['cpu']:.2f} s of CPU time"
        )
    print(f"goal for the example pair on two cores: {GOAL:g} s")
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(result, indent=1) + "\n")
    print(f"written to {given.out}")


if __name__ == "__main__":
    main()
