"""The cost benchmarks on one device, in reduced sizes, as many as a budget of seconds holds, most wanted first.

What no longer fits is left out and named. A part that fails is told and costs the others nothing: the machine may be lent.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import capture_cost
import chain
import growth
import repeating
from made_up import Place
from measuring import on_cuda
from rich.console import Console
from ways import Job, refuse_unknown

from driftscope.target.prompts import load_prompts

BATCH = 8
"""Prompts that a capture continues at once."""
REPEATED = ("norms", "noise", "pin", "depth", "layers")
"""Probes that run twice: of each kind of work on the drafter one."""

Say = Callable[[str], None]


@dataclass
class Budget:
    """Seconds that a program may take in all."""

    seconds: float
    begun: float = field(default_factory=time.monotonic)

    @property
    def left(self) -> float:
        return self.seconds - (time.monotonic() - self.begun)


@dataclass(frozen=True)
class Part:
    """A benchmark or a part of one."""

    needs: float
    """Seconds that it is not begun without: a guess for one data-centre GPU, with room."""
    work: Callable[[], Any]
    show: Callable[[Any, Console], None]


def parts_of(job: Job, say: Say) -> dict[str, Part]:
    """The parts by name. job: what the chains run on."""
    place = Place(job.threads, job.device)
    half = replace(place, dtype="bfloat16")
    # Without a device it is a dry run.
    varied = growth.ON_CUDA if on_cuda(job.device) else {name: sizes[:3] for name, sizes in growth.VARIED.items()}
    grown = {
        f"growth by {name}": Part(20, partial(growth.grown, name, sizes, place, say), partial(growth.print_grown, name))
        for name, sizes in varied.items()
    }
    return {
        "repeated run": Part(75, partial(repeated, job), show_repeated),
        "chain": Part(90, partial(against_loops, job, say), chain.print_report),
        "capture": Part(45, partial(captured, job, "float32"), capture_cost.print_report),
        "recording by width": Part(25, partial(growth.recorded, varied["heads"], place, say), growth.print_recorded),
        "limit": Part(15, partial(growth.limits, place, say), growth.print_limit),
        "limit, bfloat16": Part(15, partial(growth.limits, half, say), growth.print_limit),
        **grown,
        "capture, bfloat16": Part(45, partial(captured, job, "bfloat16"), capture_cost.print_report),
    }


def run_parts(
    parts: Mapping[str, Part], budget: Budget, keep: Callable[[dict[str, Any]], None], say: Say
) -> dict[str, Any]:
    """What each part that fits `found`, the `seconds` that it took, and which were `skipped` and `failed`.

    keep: given that after every part, so that nothing is lost where the whole is stopped.
    """
    result: dict[str, Any] = {"found": {}, "seconds": {}, "skipped": [], "failed": {}}
    for name, part in parts.items():
        if budget.left < part.needs:
            result["skipped"].append(name)
        else:
            say(f"{name} ({budget.left:.0f} s left)")
            begun = time.monotonic()
            try:
                result["found"][name] = part.work()
            except Exception as error:
                reason = next(iter(str(error).splitlines()), "")
                result["failed"][name] = f"{type(error).__name__}: {reason}"
            result["seconds"][name] = time.monotonic() - begun
        keep(result)
    return result


def against_loops(job: Job, say: Say) -> dict[str, Any]:
    refuse_unknown(job)
    return chain.benchmark(job, say)


def captured(job: Job, dtype: str) -> dict[str, Any]:
    return capture_cost.benchmark(replace(job, prompts=BATCH, anchors=1, depth=1, dtype=dtype))


def repeated(job: Job) -> dict[str, Any]:
    """Whether two runs of these probes are the same, bit for bit."""
    options = {
        "checkpoint": job.checkpoint,
        "target": job.target,
        "device": job.device,
        "dtype": "float32",
        "probes": list(REPEATED),
        "max_new_tokens": job.max_new_tokens,
        "depth": job.depth,
        "horizon": job.depth,
        "anchors": job.anchors,
    }
    return repeating.repeated(options, load_prompts(None)[:2], seconds=120)


def show_repeated(found: Mapping[str, Any], console: Console) -> None:
    told = f"differ in {', '.join(found['differ'])}" if found["differ"] else "are the same bit for bit"
    console.print(f"{found['rows']} rows of {', '.join(found['probes'])} of two deterministic runs {told}")


def show(result: Mapping[str, Any], parts: Mapping[str, Part], console: Console) -> None:
    """Print what run_parts() kept."""
    for name, found in result["found"].items():
        console.print(f"\n[bold]{name}[/bold], {result['seconds'][name]:.0f} s")
        parts[name].show(found, console)
    if result["skipped"]:
        console.print(f"\nleft out, for they may not have fitted: {', '.join(result['skipped'])}")


def problems_of(result: Mapping[str, Any]) -> list[str]:
    """A line for each part that failed, and for runs that do not repeat."""
    lines = [f"{name} failed: {reason}" for name, reason in result["failed"].items()]
    differ = result["found"].get("repeated run", {}).get("differ")
    return lines + ([f"deterministic runs differ in {', '.join(differ)}"] if differ else [])
