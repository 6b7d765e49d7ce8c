"""`driftscope probes`: what can be asked of a drafter, and what it costs."""

from __future__ import annotations

import contextlib
import re
import sys
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from driftscope.commands import options
from driftscope.commands.guard import Debug, print_json

if TYPE_CHECKING:
    from driftscope.measuring.estimate import Cost

EXAMPLES = """[bold]Examples[/bold]

[cyan]driftscope probes[/cyan]

What would all of them cost for this pair on this machine?
[cyan]driftscope probes drafters/eagle3 --target Qwen/Qwen3-8B[/cyan]"""

_SHOWN = 8
"""Variants of a probe that are named; of more, the first and the last ones."""


@dataclass(frozen=True)
class Priced:
    """What a pair makes of one probe."""

    variants: list[str]
    cost: Cost


def probes(
    checkpoint: Annotated[
        str | None,
        typer.Argument(
            metavar="[CHECKPOINT]", help="Drafter for which variants and seconds are told.", show_default=False
        ),
    ] = None,
    target: Annotated[
        str | None, typer.Option("--target", help="Its target. [dim]Default: what the config names.[/dim]")
    ] = None,
    count: Annotated[int, typer.Option("--prompts", min=1, help="Prompts of the run that is priced.")] = 48,
    depth: Annotated[int, typer.Option("--depth", min=1, help="Steps for which the cost is given.")] = 8,
    json: options.Json = False,
    device: Annotated[
        str, typer.Option("--device", help="auto, cpu, cuda, cuda:1, ...", rich_help_panel=options.PLACES)
    ] = "auto",
    dtype: Annotated[
        str, typer.Option("--dtype", help="auto, float32, bfloat16 or float16.", rich_help_panel=options.PLACES)
    ] = "auto",
    trust_remote_code: options.TrustRemoteCode = False,
    debug: Debug = False,
) -> None:
    """List the probes with the question that each answers, its variants and what it costs.

    With a checkpoint, the pair is loaded, a clean chain and a few target steps are timed, and the cost is told in time.
    """
    from driftscope.errors import DriftscopeError
    from driftscope.probes import available

    if checkpoint is None and target is not None:
        raise DriftscopeError("--target without a checkpoint: driftscope probes CHECKPOINT --target TARGET")
    priced = (
        {}
        if checkpoint is None
        else _priced(checkpoint, target, count, depth, device=device, dtype=dtype, trust_remote_code=trust_remote_code)
    )
    rows = _rows(available(), priced, depth)
    if json:
        print_json(rows)
        return
    from driftscope.show.terminal import stdout_console

    console = stdout_console()
    console.print(_table(rows, bool(priced)))
    about = (
        f"for {count} prompts of the usual length, timed here and now; shared: measured together with the one above; a"
        " warm cache spares the captures"
        if priced
        else f"cost: in chain passes, where 1x is the clean chains of {depth} steps; shared: measured together with the"
        " one above. In time, with the variants: driftscope probes CHECKPOINT --target TARGET"
    )
    console.print(Text(f"{about}. Choose with: driftscope probe CHECKPOINT --probes A,B", "dim"))


def _priced(checkpoint: str, target: str | None, count: int, depth: int, **places: Any) -> dict[str, Priced]:
    from driftscope.progress import stderr_progress

    # Libraries print as they please: stdout is for the result.
    with contextlib.redirect_stdout(sys.stderr), stderr_progress() as progress:
        progress.message("starting")
        from driftscope.api import load_pair
        from driftscope.chain.prompt_chains import Settings
        from driftscope.measuring.estimate import estimate
        from driftscope.probes import available

        progress.message(f"loading {checkpoint}")
        pair = load_pair(checkpoint, target, **places)
        progress.message("timing a chain and the target")
        found = available()
        settings = Settings(depth=depth, horizon=max(Settings().horizon, depth))
        costs = estimate(pair, list(found.values()), settings, prompts=count)
        return {
            cost.probe: Priced([variant.name for variant in found[cost.probe].variants(pair)], cost) for cost in costs
        }


def _rows(found: dict[str, Any], priced: dict[str, Priced], depth: int) -> list[dict[str, Any]]:
    """One entry a probe, as --json prints it; figures that were not asked for are absent."""
    from driftscope.probes import DEFAULT

    rows: list[dict[str, Any]] = []
    for name, item in found.items():
        row: dict[str, Any] = {
            "probe": name,
            "question": item.question,
            "default": name in DEFAULT,
            "shard": item.shard,
            "passes": item.cost(depth),
        }
        if name in priced:
            row |= {
                "variants": priced[name].variants,
                "chain_seconds": priced[name].cost.chains,
                "capture_seconds": priced[name].cost.captures,
            }
        rows.append(row)
    return rows


def _table(rows: list[dict[str, Any]], priced: bool) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    table.add_column("probe", no_wrap=True, style="bold")
    table.add_column("question")
    if priced:
        table.add_column("variants")
    table.add_column("cost", justify="right", no_wrap=True)
    table.add_column("runs", no_wrap=True)
    shared = set()
    for row in rows:
        cost = f"{row['passes']:g}x"
        if priced:
            # With a pair torch is loaded already.
            from driftscope.measuring.estimate import duration

            own = row["capture_seconds"]
            cost = duration(row["chain_seconds"]) + (f"\n+ {duration(own)} captures" if own else "")
        cells = [row["probe"], row["question"], "shared" if row["shard"] in shared else cost]
        if priced:
            cells.insert(2, named(row["probe"], row["variants"]))
        shared.add(row["shard"])
        table.add_row(*cells, "by default" if row["default"] else "on request")
    return table


def named(probe: str, variants: list[str]) -> str:
    """The variants in a line: seeds counted, the middle of a long list left out."""
    counted = Counter(re.sub(r"/seed\d+$", "", name.removeprefix(f"{probe}/")) for name in variants)
    names = [name if count == 1 else f"{name} ({count} seeds)" for name, count in counted.items()]
    if len(names) > _SHOWN:
        names[_SHOWN - 3 : -2] = ["..."]
    return ", ".join(names)
