"""What a result rests on: the code, the libraries, the machine and the seeds; and the file that it is kept in."""

from __future__ import annotations

import datetime
import json
import os
import platform
import subprocess
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from measuring import cpu_name, on_cuda

from driftscope.drafter.arithmetic import instructions

ROOT = Path(__file__).resolve().parent.parent
LIBRARIES = ("driftscope", "torch", "transformers", "nnsight", "numpy")


def provenance(*, threads: int | None = None, device: str = "cpu", seeds: Sequence[int] = ()) -> dict[str, Any]:
    """seeds: those that were drawn with; none where nothing is drawn. threads: of torch, all cores where not said."""
    about: dict[str, Any] = {
        "commit": commit(),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "versions": {"python": platform.python_version(), **versions()},
        "cpu": cpu_name(),
        "cores": os.cpu_count(),
        "vectors": torch.backends.cpu.get_cpu_capability(),
        "bfloat16_instructions": list(instructions(torch.bfloat16)),
        "threads": torch.get_num_threads() if threads is None else threads,
        "seeds": list(seeds),
    }
    return about | ({"device": torch.cuda.get_device_name(device)} if on_cuda(device) else {})


def write_result(
    file: Path,
    result: dict[str, Any],
    *,
    threads: int | None = None,
    device: str = "cpu",
    seeds: Sequence[int] = (),
    indent: int = 1,
) -> None:
    """The result as JSON, its provenance first."""
    about = {"provenance": provenance(threads=threads, device=device, seeds=seeds)}
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(about | result, indent=indent) + "\n", encoding="utf-8")


def commit() -> str | None:
    """Of the code that runs, with `+` where files differ from it; None outside a git tree."""
    try:
        head = _git("rev-parse", "HEAD")
        changed = _git(
            "status", "--porcelain", "--untracked-files=no", "--", "driftscope", "probes", "app", "benchmarks/*.py"
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return head + "+" * bool(changed)


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def versions() -> dict[str, str]:
    found = {}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
