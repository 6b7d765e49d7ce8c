"""Every cost benchmark on one pair, one after the other, as JSON in benchmarks/results/; the docs make their page of it.

    python benchmarks/all.py [CHECKPOINT] [--target TARGET] [--threads 1] [--only chain,growth]

Leave the machine alone meanwhile. With --threads 1 CPU seconds are those of the work; with more they count waiting too.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
RESULTS = HERE / "results"
PROGRAMS = {
    "startup": ("startup.py", True, ()),
    "chain": ("chain.py", True, ("--threads",)),
    "capture_cost": ("capture_cost.py", True, ("--threads",)),
    "growth": ("growth.py", False, ("--threads",)),
    "drift_cost": ("drift_cost.py", True, ("--threads",)),
    "training_cost": ("training_cost.py", True, ("--threads",)),
    "app_speed": ("app_speed.py", False, ()),
}
"""Name of the result -> file, whether it takes a pair, and options that it knows."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", nargs="?", default="examples/smollm2/checkpoints/eagle3.1")
    parser.add_argument("--target", default="build/target")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", default=",".join(PROGRAMS), help="names with commas")
    given = parser.parse_args()
    chosen = given.only.split(",")
    unknown = set(chosen) - set(PROGRAMS)
    if unknown:
        parser.error(f"no {', '.join(sorted(unknown))}; choose from {', '.join(PROGRAMS)}")
    RESULTS.mkdir(exist_ok=True)
    failed = []
    for name in chosen:
        file, paired, options = PROGRAMS[name]
        print(f"== {name}", file=sys.stderr)
        command = [sys.executable, str(HERE / file), *([given.checkpoint, "--target", given.target] if paired else ())]
        command += [part for option in options for part in (option, str(given.threads))]
        # From the repository's root, so that the results name no folder of one machine.
        if subprocess.run([*command, "-o", str(RESULTS / f"{name}.json")], check=False, cwd=ROOT).returncode:
            failed.append(name)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
