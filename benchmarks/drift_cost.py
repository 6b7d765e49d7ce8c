"""What the probe `cost` takes: CPU seconds a prompt against one set of undisturbed chains, on a real pair.

    python benchmarks/drift_cost.py CHECKPOINT --target TARGET [--prompts 12] [--threads 1] [--repeats 3]

The texts are captured and their prefix passes made beforehand: both ways need them. One clean chain is what the estimates of
`driftscope probes` count in: all anchors of a prompt, every site read.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from measuring import counted, device_argument, machine, measured

from driftscope.api import capture_prompts, load_pair
from driftscope.captures.capture import long_enough
from driftscope.chain.prompt_chains import Settings, Subject
from driftscope.probes.cost import CostProbe

GOAL = 10.0
"""Clean chains' worth that the probe may take by default."""
PROBES = {
    "default": CostProbe(),
    "split_state": CostProbe(split_state=True),
    "all_anchors": CostProbe(anchors="all"),
}


def subjects(checkpoint: str, target: str, count: int, device: str) -> list[Subject]:
    """Prompts of all lengths, with their prefix passes."""
    pair, settings = load_pair(checkpoint, target, device=device), Settings()
    usable = [record for record in capture_prompts(pair) if long_enough(record, settings.horizon)]
    made = [Subject(pair, record, settings) for record in usable[:: max(1, len(usable) // count)][:count]]
    for subject in made:
        assert subject.passed is not None
    return made


def clean(prompts: Sequence[Subject]) -> None:
    for subject in prompts:
        subject.chains("drafted")


def probed(prompts: Sequence[Subject], probe: CostProbe) -> None:
    for subject in prompts:
        probe.measure(subject)


def benchmark(checkpoint: str, target: str, *, prompts: int, threads: int, repeats: int, device: str) -> dict[str, Any]:
    """Seconds a prompt of each way, and how many clean chains that is worth."""
    torch.set_num_threads(threads)
    made = subjects(checkpoint, target, prompts, device)
    clean(made[:1])
    rounds: dict[str, list[float]] = {"clean": [], **{name: [] for name in PROBES}}
    # In turn, so that what else the machine does falls on all alike.
    for _ in range(repeats):
        for name in rounds:
            run = (lambda: clean(made)) if name == "clean" else (lambda name=name: probed(made, PROBES[name]))
            rounds[name].append(getattr(measured(run, device=device), counted(device)) / len(made))
    seconds = {name: statistics.median(times) for name, times in rounds.items()}
    worth = {name: seconds[name] / seconds["clean"] for name in PROBES}
    about = {"prompts": len(made), "anchors": statistics.mean(len(subject.anchors) for subject in made)}
    settings = {"depth": made[0].settings.depth, "threads": threads, "goal": GOAL, "counted": counted(device)}
    return {"machine": machine(device), **about, **settings, "seconds_per_prompt": seconds, "clean_chains": worth}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint")
    parser.add_argument("--target", required=True)
    parser.add_argument("--prompts", type=int, default=12)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("-o", "--out", type=Path, default=Path("build/benchmarks/drift_cost.json"))
    device_argument(parser)
    given = parser.parse_args()
    if min(given.prompts, given.threads, given.repeats) < 1:
        parser.error("--prompts, --threads and --repeats must be at least 1")
    how = {"prompts": given.prompts, "threads": given.threads, "repeats": given.repeats, "device": given.device}
    found = benchmark(given.checkpoint, given.target, **how)
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    for name, worth in found["clean_chains"].items():
        print(f"{name}: {found['seconds_per_prompt'][name]:.3f} s a prompt, {worth:.1f} clean chains")


if __name__ == "__main__":
    main()
