"""The demo: probe the four example drafters with their real target, and say what to do next.

Target and captures are made once; a run that exists is gone on with, so the demo can be interrupted and repeated.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import target as example_target
from rich.console import Console

from driftscope.api import probe
from driftscope.errors import DriftscopeError
from driftscope.progress import RichProgress
from driftscope.target import load_target
from driftscope.terminal import render_run

CHECKPOINTS = Path(__file__).parent / "checkpoints"
DRAFTERS = ("eagle3", "fc-norm", "post-norm", "eagle3.1")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", type=Path, default=Path("build/target"), help="made on first use")
    parser.add_argument("--runs", type=Path, default=Path("runs/demo"))
    parser.add_argument("--drafters", nargs="+", default=DRAFTERS, choices=DRAFTERS)
    parser.add_argument("--prompts", type=Path, help="prompts of your own (JSONL, JSON or text)")
    args = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 120)
    try:
        folder = example_target.prepare(args.target)
        target = load_target(folder)
        for name in args.drafters:
            console.rule(f"{name}")
            out = args.runs / name
            with RichProgress() as progress:
                run = probe(
                    CHECKPOINTS / name,
                    target=target,
                    prompts=args.prompts,
                    out=out,
                    resume=out.exists(),
                    progress=progress,
                )
            render_run(run, console)
    except (DriftscopeError, ValueError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 2
    console.rule("next")
    console.print(
        f"The runs are in {args.runs}. Side by side:  .venv/bin/driftscope compare {args.runs}/*\n"
        "Your own checkpoint:  .venv/bin/driftscope probe CHECKPOINT --target HF_FOLDER_OR_NAME\n"
        "How a checkpoint is read, without a target:  .venv/bin/driftscope inspect CHECKPOINT",
        highlight=False,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
