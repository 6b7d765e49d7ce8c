"""`driftscope compare`: drafters of one target on the same texts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from driftscope.commands import options
from driftscope.commands.guard import Debug, print_json

EXAMPLES = """[bold]Examples[/bold]

Each against the first:
[cyan]driftscope compare runs/old runs/new[/cyan]

Which of FC-norm and post-norm suppresses drift? The four drafters of the 2 x 2, in any order:
[cyan]driftscope compare runs/eagle3 runs/fc-norm runs/post-norm runs/eagle3.1[/cyan]

One drafter under the target that it was trained for, and under others:
[cyan]driftscope compare runs/base runs/fine-tuned runs/int8[/cyan]

The causes that one run shows:
[cyan]driftscope compare runs/eagle3[/cyan]"""


def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders.", show_default=False)],
    depth: Annotated[
        int | None, typer.Option("--depth", min=1, help="Only the first steps. [dim]Default: all in common.[/dim]")
    ] = None,
    thresholds: options.Thresholds = None,
    json: options.Json = False,
    debug: Debug = False,
) -> None:
    """Compare runs of different drafters: paired differences, and the effects of FC-norm and post-norm.

    The runs must have measured the same texts of the same target, or be of one drafter under several targets (base, fine-tuned,
    quantised): then each is told against the first, keep, adapt or retrain. Recognises the four drafters with and without FC-norm
    and a post-norm carry, and says what each switch does.
    """
    from driftscope.compare import compare as compare_runs
    from driftscope.compare.targets import compare_targets, same_drafter_other_targets
    from driftscope.runs.run import Run
    from driftscope.show.terminal import stdout_console

    opened = [Run.open(run) for run in runs]
    if same_drafter_other_targets(opened):
        found = compare_targets(opened)
        if json:
            print_json({"targets": [part.to_dict() for part in found]})
        else:
            from driftscope.compare.targets_view import render_targets

            render_targets(found, stdout_console())
        return

    comparison = compare_runs(opened, depth=depth, thresholds=thresholds)
    if json:
        print_json(comparison.to_dict())
        return
    from driftscope.compare.view import render_comparison

    render_comparison(comparison, stdout_console())
