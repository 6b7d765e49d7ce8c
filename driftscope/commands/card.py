"""`driftscope card`: what a run says, as Markdown for a model card."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Annotated

import typer

from driftscope.commands.guard import Debug

EXAMPLES = """[bold]Examples[/bold]

[cyan]driftscope card runs/eagle3 >> README.md[/cyan]"""


def card(
    run: Annotated[Path, typer.Argument(help="Run folder.", show_default=False)],
    debug: Debug = False,
) -> None:
    """Print a block of Markdown for the model card of a drafter: one table of acceptance, and the sentences that go with it."""
    with contextlib.redirect_stdout(sys.stderr):
        from driftscope.runs.run import Run
        from driftscope.serving.card import card as block

        text = block(Run.open(run))
    typer.echo(text, nl=False)
