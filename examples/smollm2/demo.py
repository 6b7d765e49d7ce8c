"""The demo: probe the four example drafters with their real target, and say what to do next.

Target and captures are made once; a run that exists is gone on with, so the demo can be interrupted and repeated.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import target as example_target
from rich import box
from rich.console import Console
from rich.table import Table

from driftscope.api import probe
from driftscope.compare import compare, cost_answer
from driftscope.compare.view import render_comparison
from driftscope.errors import DriftscopeError
from driftscope.findings import assess, save
from driftscope.findings.words import plain
from driftscope.progress import stderr_progress
from driftscope.runs.run import Run
from driftscope.show.terminal import render_run, stdout_console
from driftscope.target.model import load_target

CHECKPOINTS = Path(__file__).parent / "checkpoints"
DRAFTERS = ("eagle3", "fc-norm", "post-norm", "eagle3.1")
"""The 2 x 2 of the two fixes."""
TWIN = "eagle3-cold"
"""`eagle3` from random weights at the start: as many accepted tokens, without the drift of its attention."""
PATHS = ("state", "pattern", "values")


def cost_table(runs: list[Run]) -> Table:
    """What is accepted, what would be without drift, and through which path the difference goes, of runs with a cost."""
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)
    for header in ("", "accepted", "undrifted", "drift costs", "state", "attention", "values"):
        table.add_column(header, justify="right" if header else "left")
    for run in runs:
        cost = run.summary().get("drift_cost", {})
        if "cost" in cost:
            lengths = [cost["actual"], cost["undrifted"]]
            paths = [cost["cost"], *(cost[path]["shapley"] for path in PATHS)]
            table.add_row(run.folder.name, *(_cell(one) for one in lengths), *(_cell(one, sign=True) for one in paths))
    return table


def _cell(figure: dict[str, float | None], *, sign: bool = False) -> str:
    told = plain(figure["mean"], 2, sign=sign)
    if figure["low"] is None or figure["high"] is None:
        return told
    return f"{told}\n{plain(figure['low'], 2, sign=sign)} to {plain(figure['high'], 2, sign=sign)}"


def conclude(runs: list[Run], answer: str, console: Console) -> None:
    """The answer of the demo: the cost of drift of each drafter by path, and what the fixes change of it."""
    table = cost_table(runs)
    if not table.row_count:
        return
    console.rule("what drift costs")
    console.print("Accepted tokens a chain, at 16 anchors of each prompt, with 95% intervals over prompts.")
    console.print(table)
    if answer:
        console.print(f"Of these, {answer}")


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
        answer = ""
        if len(runs) > 1:
            console.rule("side by side")
            comparison = compare(runs)
            render_comparison(comparison, console)
            answer = cost_answer(comparison.compared)
        conclude(runs, answer, console)
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
