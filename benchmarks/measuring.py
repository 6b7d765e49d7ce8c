"""What a piece of work costs: seconds and peak memory, on a CPU or on a CUDA device.

On a device the host hands out work and goes on: clocks stop once the device is done, wall seconds are what counts, and
memory is what the device's allocator gave out.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import gc
import multiprocessing
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from driftscope.errors import DriftscopeError
from driftscope.measuring.machine import cpu_name
from driftscope.target.placement import resolve_device

MIB = 1 << 20


@dataclass(frozen=True)
class Cost:
    """Of one pass over all prompts."""

    wall: float
    """Seconds, the median of the repeats."""
    cpu: float
    """Seconds over all threads, the median of the repeats."""
    peak: float
    """MiB above what was there before."""


def measured(run: Callable[[], object], repeats: int = 1, device: str = "cpu") -> Cost:
    """What `run` costs."""
    base = reset_peak(device)
    walls, cpus = [], []
    for _ in range(repeats):
        wall, cpu = time.perf_counter(), time.process_time()
        run()
        finish(device)
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
    return Cost(statistics.median(walls), statistics.median(cpus), max(0.0, peak(device) - base))


def in_turn(ways: Mapping[str, Callable[[], object]], rounds: int, device: str = "cpu") -> dict[str, float]:
    """The least seconds of each way, the ways taking turns: CPU seconds of all threads, or wall seconds of a device. A first
    round, which makes what stays, does not count. What else runs on the machine only ever adds."""
    clock = time.perf_counter if on_cuda(device) else time.process_time
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for round_ in range(rounds + 1):
        for name, way in ways.items():
            finish(device)
            begun = clock()
            way()
            finish(device)
            if round_ > 0:
                seconds[name].append(clock() - begun)
    return {name: min(times) for name, times in seconds.items()}


def on_cuda(device: str) -> bool:
    return torch.device(device).type == "cuda"


def counted(device: str) -> str:
    """The field of a Cost that tells how much work it was: on a CPU others may share the cores, on a device the CPU waits."""
    return "wall" if on_cuda(device) else "cpu"


def finish(device: str) -> None:
    """Wait until the device has done what it was given."""
    if on_cuda(device):
        torch.cuda.synchronize(device)


def reset_peak(device: str = "cpu") -> float:
    """Set the peak back to what is in use now where the system allows it (Linux, CUDA); the peak then, in MiB."""
    if on_cuda(device):
        # What is only held in cycles would be freed while measuring.
        gc.collect()
        finish(device)
        torch.cuda.reset_peak_memory_stats(device)
        return peak(device)
    gc.collect()
    # Pages that were freed but are still held would hide what is asked for anew.
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return peak()


def peak(device: str = "cpu") -> float:
    """Peak memory in MiB: resident, of this process, or allocated on the device."""
    if on_cuda(device):
        return torch.cuda.max_memory_allocated(device) / MIB
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024
    except (OSError, StopIteration):
        unit = MIB if sys.platform == "darwin" else 1 << 10
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def apart(work: Callable[..., Any], *arguments: Any) -> Any:
    """The result of `work` from a fresh process, so that its peak memory is its own."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(work, *arguments).result()


def here(work: Callable[..., Any], *arguments: Any) -> Any:
    """The result of `work` from this process."""
    return work(*arguments)


def caller(device: str) -> Callable[..., Any]:
    """`apart`, or `here` for a device, whose memory is counted apart from the process and which takes long to open."""
    return here if on_cuda(device) else apart


def machine(device: str = "cpu") -> dict[str, Any]:
    """What the figures depend on."""
    told: dict[str, Any] = {"cores": os.cpu_count(), "cpu": cpu_name(), "torch": torch.__version__}
    return told | ({"device": torch.cuda.get_device_name(device)} if on_cuda(device) else {})


def device_argument(parser: argparse.ArgumentParser, *, dtype: bool = False) -> None:
    """Add `--device` to a program, and `--dtype` where it measures in others than float32 too."""
    parser.add_argument("--device", type=_device, default="cpu", help="cpu, cuda, cuda:N or auto (default: cpu)")
    if dtype:
        parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16", "float16"))


def _device(text: str) -> str:
    try:
        return str(resolve_device(text))
    except DriftscopeError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
