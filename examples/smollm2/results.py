"""Measure the example drafters and keep what README and docs say of them: results/NAME.json and results/comparison.json.

python examples/smollm2/results.py                       # all drafters, the default probes
python examples/smollm2/results.py eagle3 --probes all
python examples/smollm2/results.py --add pin,depth,layers # these beside what the results hold, from runs of their own

What drift costs is measured at every anchor, where the demo takes 16 of each prompt. Runs are kept in --runs and gone on
with, so that the work can be stopped and repeated. Each file names the commit, the
versions, the machine and the seed with which it was made. `make generated` then fills the pages.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import target as example_target
import torch
from demo import CHECKPOINTS, DRAFTERS, TWIN

from driftscope.api import probe
from driftscope.commands.content import run_content
from driftscope.compare import compare
from driftscope.findings import assess, save
from driftscope.measuring.machine import cpu_name
from driftscope.probes import DEFAULT
from driftscope.probes.held import probe_figures
from driftscope.progress import stderr_progress
from driftscope.runs.run import Run
from driftscope.target.model import Target, load_target

RESULTS = Path(__file__).parent / "results"
PACKAGES = ("torch", "transformers", "nnsight", "numpy", "scipy")


def provenance() -> dict[str, Any]:
    """Where and from what a result was made."""
    return {
        "commit": _git("rev-parse", "HEAD"),
        "changed_since": bool(_git("status", "--porcelain", "--", "driftscope", "probes", "examples")),
        "python": platform.python_version(),
        "packages": {name: version(name) for name in PACKAGES},
        "cpu": cpu_name(),
        "capability": torch.backends.cpu.get_cpu_capability(),
    }


def measured(name: str, target: Target, runs: Path, probes: Sequence[str] | str) -> Run:
    """The run of an example drafter, made or gone on with."""
    out = runs / name
    with stderr_progress() as progress:
        run = probe(
            CHECKPOINTS / name,
            target=target,
            out=out,
            resume=out.exists(),
            probes=probes,
            options={"cost.anchors": "all"} if "cost" in probes or probes == "all" else {},
            progress=progress,
        )
    save(run, assess(run))
    return run


def content(run: Run) -> dict[str, Any]:
    """What the pages need of a run: `driftscope probe --json` and the figures of every probe that it holds."""
    told = run_content(run, assess(run), None)
    told["provenance"].pop("command", None)
    told["checkpoint"]["path"] = Path(told["checkpoint"]["path"]).name
    told["target"]["name"] = Path(told["target"]["name"]).name
    return {"made": {**provenance(), "seed": run.info.settings["seed"]}, "run": told, "probes": probe_figures(run)}


def added(name: str, run: Run, probes: Sequence[str]) -> dict[str, Any]:
    """The results that there are, with the figures of further probes and what those were made with."""
    held: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    figures = probe_figures(run)
    made = {**provenance(), "seed": run.info.settings["seed"]}
    held["probes"] |= {probe: figures[probe] for probe in probes}
    held["made_later"] = {**held.get("made_later", {}), **dict.fromkeys(probes, made)}
    return held


def write(name: str, made: dict[str, Any]) -> None:
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(made, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def _git(*command: str) -> str:
    found = subprocess.run(["git", *command], cwd=Path(__file__).parent, capture_output=True, text=True, check=True)
    return found.stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("drafters", nargs="*", default=[*DRAFTERS, TWIN])
    parser.add_argument("--target", type=Path, default=Path("build/target"), help="made on first use")
    parser.add_argument("--runs", type=Path, default=Path("runs/results"))
    parser.add_argument("--probes", default="default", help="names with commas, or all")
    parser.add_argument(
        "--add", default="", help="probes with commas, measured apart and put into the results that there are"
    )
    args = parser.parse_args()
    if args.add:
        target, names = load_target(example_target.prepare(args.target)), args.add.split(",")
        for name in args.drafters:
            write(
                name,
                added(name, measured(name, target, args.runs.with_name(f"{args.runs.name}-{args.add}"), names), names),
            )
        return
    probes = DEFAULT if args.probes == "default" else args.probes
    target = load_target(example_target.prepare(args.target))
    runs = {name: measured(name, target, args.runs, probes) for name in args.drafters}
    for name, run in runs.items():
        write(name, content(run))
    if set(DRAFTERS) <= set(runs):
        made = compare([runs[name] for name in DRAFTERS]).to_dict()
        made["folders"] = [Path(folder).name for folder in made.get("folders", [])]
        write("comparison", {"made": provenance(), "comparison": made})


if __name__ == "__main__":
    main()
