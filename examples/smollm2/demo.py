"""The demo: probe the four example drafters with their real target, and say what to do next.

Target and captures are made once; a run that exists is gone on with, so the demo can be interrupted and repeated.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import target as example_target

from driftscope.api import probe
from driftscope.compare import compare
from driftscope.compare.view import render_comparison
from driftscope.errors import DriftscopeError
from driftscope.findings import assess, save
from driftscope.progress import stderr_progress
from driftscope.show.terminal import render_run, stdout_console
from driftscope.target.model import load_target

CHECKPOINTS = Path(__file__).parent / "checkpoints"
DRAFTERS = ("eagle3", "fc-norm", "post-norm", "eagle3.1")
"""The 2 x 2 of the two fixes."""
TWIN = "eagle3-cold"
"""`eagle3` from random weights at the start: as many accepted tokens, without the drift of its attention."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", type=Path, default=Path("build/target"), help="made on first use")
    parser.add_argument("--runs", type=Path, default=Path("runs/demo"))
    parser.add_argument("--drafters", nargs="+", default=DRAFTERS, choices=(*DRAFTERS, TWIN))
    parser.add_argument("--prompts", type=Path, help="prompts of your own (JSONL, JSON or text)")
    args = parser.parse_args()
    console = stdout_console()
    runs = []
    try:
        target = load_target(example_target.prepare(args.target))
        for name in args.drafters:
            out = args.runs / name
            with stderr_progress() as progress:
                run = probe(
                    CHECKPOINTS / name,
                    target=target,
                    prompts=args.prompts,
                    out=out,
                    resume=out.exists(),
                    progress=progress,
                )
            assessment = assess(run)
            save(run, assessment)
            console.rule(name)
            render_run(run, console, assessment=assessment)
            runs.append(run)
        if len(runs) > 1:
            console.rule("side by side")
            render_comparison(compare(runs), console)
    except DriftscopeError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 2
    console.rule("next")
    console.print(
        f"All of it as a page:   .venv/bin/driftscope report {args.runs}/* -o report.html\n"
        f"Look around:           .venv/bin/driftscope app {args.runs}\n"
        "Your own checkpoint:   .venv/bin/driftscope probe CHECKPOINT --target FOLDER_OR_NAME\n"
        "How one is read:       .venv/bin/driftscope inspect CHECKPOINT\n"
        "Is it run as trained?  .venv/bin/driftscope audit CHECKPOINT --target FOLDER_OR_NAME",
        highlight=False,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
