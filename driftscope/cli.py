"""The `driftscope` command. torch is not imported before a command needs it."""

from __future__ import annotations

from typing import Annotated

import typer

from driftscope._version import __version__
from driftscope.commands import cache, inspect, probe, probes, show
from driftscope.commands.guard import Debug, GuardedGroup

HELP = """Tells why a speculative-decoding drafter goes wrong, and from which step on.

[bold]Start here[/bold]

[cyan]driftscope probe path/to/drafter --target path/or/name[/cyan]   measure it
[cyan]driftscope inspect path/to/drafter[/cyan]   how the checkpoint is read, in seconds
[cyan]driftscope show runs/drafter[/cyan]   print a run again"""

app = typer.Typer(
    cls=GuardedGroup,
    help=HELP,
    rich_markup_mode="rich",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"driftscope {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Debug = False,
) -> None:
    pass


app.command("probe", epilog=probe.EXAMPLES)(probe.probe)
app.command("inspect", epilog=inspect.EXAMPLES)(inspect.inspect)
app.command("show")(show.show)
app.command("probes")(probes.probes)
app.add_typer(cache.app, name="cache")


def main() -> None:
    """Entry point of the console script."""
    app(prog_name="driftscope")
