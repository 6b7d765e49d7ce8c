"""The memory that a chunk of chains may take: a share of what the device has free."""

from __future__ import annotations

import os
from pathlib import Path

import torch

SHARE = 16
"""One part in so many of what is free: scores are not the only thing that a chunk holds, and others use the device too."""
USUAL = 256 << 20
"""Bytes. The most on a CPU, where larger chunks gain nothing, and what it is where chunks must be the same every time."""
LEAST = 16 << 20
_CGROUP = Path("/sys/fs/cgroup")


def chunk_bytes(device: torch.device) -> int:
    """Bytes of attention scores for a chunk, a power of two, so that small changes of what is free change nothing.

    Chunks change no figure beyond the rounding of its last digits; with deterministic algorithms, where these count as well, it
    is USUAL whatever is free.
    """
    if torch.are_deterministic_algorithms_enabled():
        return USUAL
    free = free_bytes(device)
    if free is None:
        return USUAL
    part = 1 << max(free // SHARE, LEAST).bit_length() - 1
    return part if device.type == "cuda" else min(part, USUAL)


def free_bytes(device: torch.device) -> int | None:
    """What is free on a CUDA device, with what torch holds there unused, or on this machine; None where that cannot be told."""
    if device.type == "cuda":
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + unused
    if device.type != "cpu":
        return None
    found = [free for free in (_machine_free(), _group_free()) if free is not None]
    return min(found, default=None)


def _machine_free() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        pass
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None


def _group_free() -> int | None:
    """What the container's limit leaves."""
    try:
        most, used = ((_CGROUP / name).read_text().strip() for name in ("memory.max", "memory.current"))
        return None if most == "max" else max(0, int(most) - int(used))
    except (OSError, ValueError):
        return None
