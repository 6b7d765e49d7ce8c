"""`driftscope cache`: the captures that are kept on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from driftscope.commands.guard import Debug
from driftscope.errors import DriftscopeError

app = typer.Typer(help="Captures of targets that are kept on disk.", no_args_is_help=True)

Root = Annotated[Path | None, typer.Option("--cache-dir", envvar="DRIFTSCOPE_CACHE", help="Where captures are kept.")]


@app.command("ls")
def ls(cache_dir: Root = None, debug: Debug = False) -> None:
    """List what is kept, a line per target."""
    from driftscope.captures.cache import CaptureCache
    from driftscope.show.terminal import stdout_console

    console, cache = stdout_console(), CaptureCache(cache_dir)
    entries = cache.entries()
    if not entries:
        console.print(f"nothing in {cache.root}", soft_wrap=True)
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for name, justify in (
        ("key", "left"),
        ("dtype", "left"),
        ("prompts", "right"),
        ("size", "right"),
        ("made", "left"),
    ):
        table.add_column(name, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    table.add_column("target", overflow="fold")
    for entry in entries:
        size, made = decimal(entry.bytes), f"{entry.created:%Y-%m-%d %H:%M}"
        table.add_row(entry.key, entry.dtype, str(entry.prompts), size, made, entry.target)
    console.print(table)
    total = decimal(sum(entry.bytes for entry in entries))
    console.print(Text(f"{total} in {cache.root}", "dim"), soft_wrap=True)


@app.command("rm")
def rm(
    which: Annotated[
        str | None,
        typer.Argument(metavar="TARGET", help="Target by name, or the start of its key.", show_default=False),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Remove everything.")] = False,
    cache_dir: Root = None,
    debug: Debug = False,
) -> None:
    """Remove the captures of a target, or all."""
    from driftscope.captures.cache import CaptureCache
    from driftscope.show.terminal import stdout_console

    if (which is None) != every:
        raise DriftscopeError("name one target or give --all; `driftscope cache ls` names those there")
    removed = CaptureCache(cache_dir).remove(which)
    console = stdout_console()
    for entry in removed:
        console.print(f"removed {entry.target} ({entry.prompts} prompts, {decimal(entry.bytes)})", soft_wrap=True)
    if not removed:
        console.print("nothing to remove")
