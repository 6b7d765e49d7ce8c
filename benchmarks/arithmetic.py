"""What packed weights and bfloat16 are worth on this CPU, and under the instructions of smaller ones.

    python benchmarks/arithmetic.py CHECKPOINT --target TARGET [--prompts 2] [--max-new-tokens 32] [--only avx2]

Cold is a capture (continuation in one batch, then a recording forward a text); warm are prefix pass and observed chains over it.
Each in float32 and bfloat16, with packed weights and without (torch's own products), the ways taking turns in one process.
CPU seconds, the least of the rounds. A capability is set by the environment variables of torch's libraries, in a process of
its own; what this machine does not have is not measured. Also the share of the chains' time that goes into products of the
linear layers in float32: without it, no faster product can make chains faster than 1 / (1 - share) times.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from measuring import apart, in_turn
from provenance import write_result
from rich.console import Console
from torch.profiler import ProfilerActivity, profile
from ways import Job, captured, opened, subjects

from driftscope.chain.prompt_chains import Subject
from driftscope.drafter import arithmetic, linear, onednn
from driftscope.drafter.arithmetic import instructions

CAPABILITIES: dict[str, dict[str, str]] = {
    "own": {},
    "avx2": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"},
}
DTYPES = ("float32", "bfloat16")
ROUNDS = {"cold": 1, "warm": 4}
PRODUCTS = ("mkldnn::_linear_pointwise", "aten::addmm", "aten::mm")


@dataclass(frozen=True)
class Way:
    """How the linear layers multiply."""

    dtype: str
    kind: str
    """`packed`; `plain`, without copies; or `as stored`, by torch in the dtype of the weights whatever the CPU has."""

    @property
    def name(self) -> str:
        return f"{self.dtype}, {self.kind}"

    @contextmanager
    def __call__(self) -> Iterator[None]:
        kept = onednn.works, linear.works, arithmetic.instructions
        if self.kind != "packed":
            onednn.works = linear.works = lambda dtype: False  # type: ignore[assignment]
        if self.kind == "as stored":
            arithmetic.instructions = lambda dtype: ("any",)  # type: ignore[assignment]
        try:
            yield
        finally:
            onednn.works, linear.works, arithmetic.instructions = kept


def ways() -> list[Way]:
    """bfloat16 multiplied as stored too, where driftscope would not do so."""
    every = [Way(dtype, kind) for dtype in DTYPES for kind in ("packed", "plain")]
    return every if instructions(torch.bfloat16) else [*every, Way("bfloat16", "as stored")]


def measure(job: Job) -> dict[str, Any]:
    """Everything under the capability that this process has."""
    pairs = {dtype: opened(replace(job, dtype=dtype)) for dtype in DTYPES}
    prepared = {}
    for dtype, (pair, prompts) in pairs.items():
        prepared[dtype] = subjects(job, pair, captured(replace(job, dtype=dtype), pair, prompts))

    def cold(way: Way) -> Callable[[], None]:
        def run() -> None:
            with way():
                captured(job, *pairs[way.dtype], cached=False)

        return run

    def warm(way: Way) -> Callable[[], None]:
        def run() -> None:
            with way():
                for subject in prepared[way.dtype]:
                    Subject(subject.pair, subject.capture, subject.settings).chains("drafted")

        return run

    found: dict[str, Any] = {
        "vectors": torch.backends.cpu.get_cpu_capability(),
        "bfloat16_instructions": list(instructions(torch.bfloat16)),
    }
    for state, make in (("warm", warm), ("cold", cold)):
        print(state, file=sys.stderr)
        chosen = [way for way in ways() if state == "warm" or way.kind != "as stored"]
        found[state] = in_turn({way.name: make(way) for way in chosen}, ROUNDS[state])
    found["product_share"] = share(warm(Way("float32", "packed")))
    return found


def share(run: Callable[[], None]) -> float:
    """Of the time of all operations, that of the linear layers' products."""
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        run()
    events = seen.key_averages()
    return float(
        sum(event.self_cpu_time_total for event in events if event.key in PRODUCTS)
        / sum(event.self_cpu_time_total for event in events)
    )


def print_report(found: dict[str, Any], console: Console) -> None:
    for name, seen in found.items():
        console.print(f"{name}: {seen['vectors']}, bfloat16 by {', '.join(seen['bfloat16_instructions']) or 'float32'}")
        for state in ("warm", "cold"):
            base = seen[state]["float32, packed"]
            parts = (f"{way} {seconds:.2f} s ({seconds / base:.2f})" for way, seconds in seen[state].items())
            console.print(f"  {state}: {'; '.join(parts)}")
        console.print(f"  products take {seen['product_share']:.0%} of the chains' time")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint")
    parser.add_argument("--target")
    parser.add_argument("--prompts", type=int, default=2, metavar="N")
    parser.add_argument("--anchors", type=int, default=64, metavar="N")
    parser.add_argument("--max-new-tokens", type=int, default=96)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", default=",".join(CAPABILITIES), help="capabilities with commas")
    parser.add_argument("-o", "--out", type=Path, default=Path("build/benchmarks/arithmetic.json"))
    given = parser.parse_args()
    found = {}
    with tempfile.TemporaryDirectory() as cache:
        job = Job(
            given.checkpoint, given.target, given.prompts, None, anchors=given.anchors, depth=8,
            max_new_tokens=given.max_new_tokens, threads=given.threads, cache=cache,
        )  # fmt: skip
        for name in given.only.split(","):
            print(f"== {name}", file=sys.stderr)
            before = dict(os.environ)
            os.environ.update(CAPABILITIES[name])
            try:
                found[name] = apart(measure, job)
            finally:
                os.environ.clear()
                os.environ.update(before)
    print_report(found, Console())
    settings = {
        key: value for key, value in asdict(job).items() if key not in ("cache", "dtype", "device", "prompt_file")
    }
    write_result(given.out, {"settings": settings, "capabilities": found}, threads=given.threads)


if __name__ == "__main__":
    main()
