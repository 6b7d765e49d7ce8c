"""`driftscope probes`: what can be asked of a drafter."""

from __future__ import annotations

from typing import Annotated

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from driftscope.commands.guard import Debug


def probes(
    depth: Annotated[int, typer.Option("--depth", min=1, help="Steps for which the cost is given.")] = 8,
    debug: Debug = False,
) -> None:
    """List the probes with the question that each answers and what it costs."""
    from driftscope.probes import DEFAULT, available
    from driftscope.terminal import stdout_console

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    table.add_column("probe", no_wrap=True, style="bold")
    table.add_column("question")
    table.add_column("cost", justify="right", no_wrap=True)
    table.add_column("runs", no_wrap=True)
    shared = set()
    for name, item in available().items():
        cost = "shared" if item.shard in shared else f"{item.cost(depth):g}x"
        shared.add(item.shard)
        table.add_row(name, item.question, cost, "by default" if name in DEFAULT else "on request")
    console = stdout_console()
    console.print(table)
    console.print(
        Text(
            f"cost: in chain passes, where 1x is the clean chains of {depth} steps; shared: measured together with the"
            " one above. Choose with: driftscope probe CHECKPOINT --probes A,B",
            "dim",
        )
    )
