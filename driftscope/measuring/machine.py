"""The processor of this machine by name, for results that say where they were made."""

from __future__ import annotations

import platform
from pathlib import Path


def cpu_name() -> str:
    """As the system calls it; the architecture where it does not say."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "") or platform.processor() or platform.machine()
