"""`driftscope show`: print a run that was measured before."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from driftscope.commands import options
from driftscope.commands.content import run_content
from driftscope.commands.guard import Debug, print_json


def show(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="Run folder.", show_default=False)],
    depth: Annotated[
        int | None, typer.Option("--depth", min=1, help="Only the first steps. [dim]Default: all.[/dim]")
    ] = None,
    feed: Annotated[
        Literal["drafted", "text"],
        typer.Option("--feed", help="Table of the chains that embed their own tokens, or the text's."),
    ] = "drafted",
    thresholds: options.Thresholds = None,
    json: options.Json = False,
    debug: Debug = False,
) -> None:
    """Print a run again, as `driftscope probe` did."""
    from driftscope.findings import assess
    from driftscope.runs.run import Run

    run = Run.open(folder)
    assessment = assess(run, thresholds, depth=depth)
    if json:
        print_json(run_content(run, assessment, depth))
        return
    from driftscope.show.terminal import render_run, stdout_console

    render_run(run, stdout_console(), depth, feed, assessment)
