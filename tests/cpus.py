"""The numeric tests under every instruction set that this machine has, and with one and two threads.

    python -m tests.cpus [--quick] [PYTEST ARGUMENT ...]        # make test-cpus

A library picks its kernels by the CPU that it finds: other kernels add up in another order. What passes with one of them
says little about a CPU that has others, so each is chosen by name here. --quick: one thread only, and without the tests on the real
pair.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch

AVX2 = {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"}
NO_AMX = {
    "ATEN_CPU_CAPABILITY": "avx512", "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16", "MKL_ENABLE_INSTRUCTIONS": "AVX512",
}  # fmt: skip
CHOSEN = {*AVX2}
Environment = dict[str, str]


def capabilities() -> dict[str, Environment]:
    """Name -> the variables that choose it, from the narrowest on; the last is what the machine does by itself."""
    seen = torch.backends.cpu.get_cpu_capability()
    found: dict[str, Environment] = {"default": {"ATEN_CPU_CAPABILITY": "default"}}
    if seen in ("AVX2", "AVX512"):
        found["avx2"] = AVX2
    if seen == "AVX512":
        if torch.cpu._is_amx_tile_supported():
            found["avx512, AMX off"] = NO_AMX
            found["avx512, AMX on"] = {"ATEN_CPU_CAPABILITY": "avx512"}
        else:
            found["avx512"] = {"ATEN_CPU_CAPABILITY": "avx512"}
    return found


def holders() -> list[str]:
    """The files that hold numeric tests: to collect all others takes longer than to run these."""
    here = Path(__file__).resolve().parent
    return [
        str(file) for file in sorted(here.rglob("test_*.py")) if "mark.numeric(" in file.read_text(encoding="utf-8")
    ]


def tested(chosen: Environment, threads: int, quick: bool, arguments: Sequence[str]) -> int:
    """The exit code of pytest over the numeric tests."""
    kinds = "numeric and not slow and not nightly" + (" and not real" if quick else "")
    environment = {name: value for name, value in os.environ.items() if name not in CHOSEN}
    environment |= chosen | dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(threads))
    command = [sys.executable, "-m", "pytest", "-q", "-m", kinds, *holders(), *arguments]
    return subprocess.run(command, env=environment).returncode


def main(arguments: Sequence[str]) -> int:
    quick = "--quick" in arguments
    rest = [argument for argument in arguments if argument != "--quick"]
    lines, failed = [], False
    for threads in (1,) if quick else (1, 2):
        for name, chosen in capabilities().items():
            print(f"== {name}, threads: {threads}", flush=True)
            began = time.monotonic()
            code = tested(chosen, threads, quick, rest)
            failed |= code != 0
            lines.append(
                f"{name}, threads: {threads}: {'failed' if code else 'passed'} ({time.monotonic() - began:.0f} s)"
            )
    print(*lines, sep="\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
