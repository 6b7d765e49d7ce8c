"""Whether a CUDA machine measures what a CPU measures, on one pair, and what it costs there: one call, under six minutes.

    python benchmarks/cuda_check.py [CHECKPOINT] [--target TARGET] [--prompts 6] [--device cuda] [-o cuda.json]

1. The recording forward and all rows of the chains in float32, on the device against the CPU, over the same texts; then with
   the drafter on the device and its target on the CPU, the other way round, and on two devices where there are two.
2. No synchronisation with the host inside the chains of the probes and their reductions.
3. bfloat16 and float16 against float32 on the device: how growth, masses and acceptance move. Reported, not judged: they
   round the carry at every step.
4. Two runs with deterministic kernels, bit for bit; then the cost benchmarks in reduced sizes (`cuda_costs`), as many as
   still fit.

Exit code 0 when 1, 2 and 4 hold, 1 when they do not, 2 when there is no CUDA device. `--device cpu` is a dry run.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import cuda_costs
import torch
from agreeing import (
    CAPTURE_TOLERANCE,
    MAX_OTHER_TOKENS,
    ROW_TOLERANCE,
    OnCpu,
    chains,
    figures,
    recorded_again,
)
from measuring import machine, on_cuda
from rich.console import Console
from torch import nn
from ways import Job

from driftscope.captures.cache import CaptureCache
from driftscope.captures.capture import capture
from driftscope.chain.drafter_inputs import needed_boundaries
from driftscope.chain.pair import Pair, load_pair
from driftscope.chain.prompt_chains import Settings, Subject
from driftscope.errors import DriftscopeError
from driftscope.probes import chosen
from driftscope.target.prompts import load_prompts, tokenize_prompts

GUARDED = ("norms", "noise", "pin")
"""Probes whose chains may not wait: plain ones and their sampling acceptance, comparisons, interventions."""
LOW = ("bfloat16", "float16")
PLACES = ("target on the CPU, drafter on the device", "target on the device, drafter on the CPU", "on two devices")


@contextlib.contextmanager
def no_sync(chain: nn.Module) -> Iterator[list[int]]:
    """Whatever waits for a CUDA device while `chain` runs, reductions in hooks included, raises RuntimeError.

    Yields a list that holds one entry per guarded run.
    """
    runs: list[int] = []

    def enter(*_: Any) -> None:
        runs.append(len(runs))
        if torch.cuda.is_available():
            torch.cuda.set_sync_debug_mode("error")

    def leave(*_: Any) -> None:
        if torch.cuda.is_available():
            torch.cuda.set_sync_debug_mode("default")

    handles = [chain.register_forward_pre_hook(enter), chain.register_forward_hook(leave, always_call=True)]
    try:
        yield runs
    finally:
        leave()
        for handle in handles:
            handle.remove()


def on_the_cpu(
    checkpoint: str, target: str, *, prompts: int, max_new_tokens: int, depth: int, anchors: int, cache: Path
) -> OnCpu:
    """What everything is compared with."""
    pair = load_pair(checkpoint, target, device="cpu", dtype="float32")
    kept, _ = tokenize_prompts(load_prompts(None), pair.target.tokenizer, max_tokens=512, min_tokens=2)
    captures = capture(
        pair.target,
        kept[:prompts],
        max_new_tokens=max_new_tokens,
        boundaries=needed_boundaries(pair.config, pair.target.num_layers),
        cache=CaptureCache(cache),
    )
    captures = [record for record in captures if record.new_tokens > depth]
    if not captures:
        raise DriftscopeError(f"no continuation is longer than the depth of {depth}; raise --max-new-tokens")
    settings = Settings(depth=depth, horizon=depth, sinks=(0,), anchors=anchors)
    return OnCpu(checkpoint, target, pair, captures, settings)


def waits(base: OnCpu, pair: Pair, label: str) -> str | None:
    """The first line of what waited for the device in the chains of the guarded probes."""
    subject = Subject(pair, base.captures[0], base.settings)
    subject.passed, subject.anchors  # noqa: B018 - prepared outside the guard
    found = None
    probes = [probe for probe in chosen(GUARDED) if pair.config.carries or not getattr(probe, "needs_carry", False)]
    with no_sync(pair.chain) as runs:
        try:
            for probe in probes:
                probe.measure(subject)
        except RuntimeError as error:
            found = str(error).splitlines()[0]
            base.problems.append(f"{label}the step loop waits for the device: {found}")
    if not runs:
        base.problems.append(f"{label}the guard against synchronisation did not see the chain run")
    return found


def in_low_precision(base: OnCpu, device: str, dtype: str, full: dict[str, list[float]]) -> dict[str, Any]:
    """The figures in `dtype` beside those in float32."""
    try:
        pair = base.load(device, dtype)
        captures, gap = recorded_again(pair, base.captures)
    except DriftscopeError as error:
        return {"error": str(error)}
    low = figures(chains(pair, captures, base.settings, "drafted"))
    return {
        "states": gap,
        "synchronised": waits(base, pair, f"{dtype}: "),
        "float32": full,
        dtype: low,
        "largest_difference": {name: max(abs(a - b) for a, b in zip(full[name], low[name], strict=True)) for name in full},
    }  # fmt: skip


def places(device: str) -> dict[str, tuple[str, str]]:
    """Where target and drafter run, apart from each other."""
    found = dict(zip(PLACES, (("cpu", device), (device, "cpu"), ("cuda:0", "cuda:1")), strict=True))
    if not (on_cuda(device) and torch.cuda.device_count() > 1):
        del found[PLACES[2]]
    return found


def check(base: OnCpu, device: str, keep: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Run the first three parts; `problems` in the result holds a line for each thing that is not as it should be.

    keep: given the result after every part.
    """
    result: dict[str, Any] = {"device": device, "machine": machine(device), "prompts": len(base.captures)}
    if on_cuda(device):
        result["device"] = torch.cuda.get_device_name(device)
        if torch.backends.cuda.matmul.allow_tf32:
            override = os.environ.get("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE")
            base.problems.append(f"products in float32 round to TF32 (TORCH_ALLOW_TF32_CUBLAS_OVERRIDE={override})")
    result["problems"] = base.problems
    there = base.load(device)
    result["float32"] = base.against(there) | {"synchronised": waits(base, there, "")}
    keep(result)
    again, _ = recorded_again(there, base.captures)
    full = figures(chains(there, again, base.settings, "drafted"))
    del there
    for name, (target, drafter) in places(device).items():
        result[name] = base.against(base.load(target, drafter_device=drafter), f"{name}: ")
        keep(result)
    for dtype in LOW:
        result[dtype] = in_low_precision(base, device, dtype, full)
        keep(result)
    return result


def tell(result: dict[str, Any]) -> None:
    """Print what check() found."""
    print(f"{result['device']}, {result['prompts']} prompts, against the CPU in float32")
    tell_differences(result["float32"])
    print(f"  waits in the step loop {result['float32']['synchronised'] or 'none'}")
    for name in (name for name in PLACES if name in result):
        print(name)
        tell_differences(result[name])
    for dtype in LOW:
        low = result[dtype]
        if "error" in low:
            print(f"{dtype}: {low['error']}")
            continue
        print(f"{dtype} against float32 (recorded states differ by {low['states']:.1e})")
        for name, value in low["largest_difference"].items():
            print(f"  {name:<15} float32  {spread(low['float32'][name])}")
            print(f"  {'':<15} {dtype:<8} {spread(low[dtype][name])}  largest difference {value:.4f}")


def tell_differences(seen: dict[str, Any]) -> None:
    print(f"  recorded states        {seen['states']:.1e}  (allowed {CAPTURE_TOLERANCE:g})")
    for name, value in seen["rows"].items():
        print(f"  {name:<22} {value:.1e}  (allowed {ROW_TOLERANCE[name]:g})")
    print(f"  other drafted tokens   {seen['other_tokens']:.2%}  (allowed {MAX_OTHER_TOKENS:.2%})")


def spread(values: Sequence[float]) -> str:
    return " ".join(f"{value:.3f}" for value in values)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", nargs="?", default="examples/smollm2/checkpoints/eagle3.1")
    parser.add_argument("--target", default="build/target")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--prompts", type=int, default=6, metavar="N", help="the first N of the shipped prompts")
    parser.add_argument("--max-new-tokens", type=int, default=64)
    parser.add_argument("--depth", type=int, default=8)
    parser.add_argument("--anchors", type=int, default=64, metavar="N", help="at most N anchors of each prompt")
    parser.add_argument(
        "--budget", type=float, default=330, metavar="SECONDS", help="what no longer fits is left out; 0: no costs"
    )
    parser.add_argument("-o", "--out", type=Path, help="write the figures here as JSON, after every part")
    given = parser.parse_args(arguments)
    if torch.device(given.device).type == "cuda" and not torch.cuda.is_available():
        print("error: no CUDA device, so nothing was checked; --device cpu is a dry run", file=sys.stderr)
        return 2
    budget = cuda_costs.Budget(given.budget)

    def keep(result: dict[str, Any]) -> None:
        if given.out:
            given.out.parent.mkdir(parents=True, exist_ok=True)
            given.out.write_text(json.dumps(result, indent=1) + "\n")

    def say(line: str) -> None:
        print(line, file=sys.stderr)

    counts = {name: getattr(given, name) for name in ("prompts", "max_new_tokens", "depth", "anchors")}
    with tempfile.TemporaryDirectory() as cache:
        try:
            base = on_the_cpu(given.checkpoint, given.target, **counts, cache=Path(cache))
            result = check(base, given.device, keep)
        except DriftscopeError as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
        tell(result)
        job = Job(
            given.checkpoint,
            given.target,
            prompt_file=None,
            threads=torch.get_num_threads(),
            cache=f"{cache}/costs",
            device=given.device,
            **counts,
        )
        parts = cuda_costs.parts_of(job, say)
        costs = cuda_costs.run_parts(parts, budget, lambda costs: keep(result | {"costs": costs}), say)
    cuda_costs.show(costs, parts, Console())
    problems = result["problems"] = base.problems + cuda_costs.problems_of(costs)
    keep(result | {"costs": costs})
    print(*(f"problem: {problem}" for problem in problems), sep="\n", end="\n" if problems else "")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
