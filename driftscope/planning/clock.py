"""The time that work takes."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch


def clock(device: torch.device) -> tuple[Callable[[], float], str]:
    """A clock in seconds for work on `device`, and what it reads.

    One thread on a CPU is timed by the CPU seconds that it had, which other programs on the machine do not lengthen; all else by
    the wall clock, after what was given to the device is done.
    """
    if device.type == "cpu" and torch.get_num_threads() == 1:
        return time.process_time, "CPU seconds"

    def wall() -> float:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter()

    return wall, "wall seconds"
