"""The `driftscope` command. torch is not imported before a command needs it."""

from __future__ import annotations

from typing import Annotated

import typer

from driftscope._version import __version__
from driftscope.commands import app as dashboard
from driftscope.commands import (
    audit,
    cache,
    capture,
    card,
    compare,
    engine,
    explain,
    inspect,
    plan,
    probe,
    probes,
    report,
    show,
)
from driftscope.commands.guard import Debug, GuardedGroup

HELP = """Tells why a speculative-decoding drafter goes wrong, and from which step on.

[bold]Start here[/bold]

[cyan]driftscope probe path/to/drafter --target path/or/name[/cyan]   measure it
[cyan]driftscope inspect path/to/drafter[/cyan]   how the checkpoint is read, in seconds
[cyan]driftscope audit path/to/drafter[/cyan]   is it run as it was trained?
[cyan]driftscope show runs/drafter[/cyan]   print a run again
[cyan]driftscope compare runs/one runs/other[/cyan]   what differs between drafters
[cyan]driftscope plan runs/drafter --measure[/cyan]   how many tokens to draft, and whether to
[cyan]driftscope engine runs/drafter --metrics FILE[/cyan]   does a server run it so? from its counters
[cyan]driftscope report runs/drafter[/cyan]   every chart in one HTML file
[cyan]driftscope app[/cyan]   all of it in a browser, down to the single token
[cyan]driftscope explain DS101[/cyan]   what a finding means"""

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
app.command("audit", epilog=audit.EXAMPLES)(audit.audit)
app.command("inspect", epilog=inspect.EXAMPLES)(inspect.inspect)
app.command("show")(show.show)
app.command("compare", epilog=compare.EXAMPLES)(compare.compare)
app.command("plan", epilog=plan.EXAMPLES)(plan.plan)
app.command("engine", epilog=engine.EXAMPLES)(engine.engine)
app.command("card", epilog=card.EXAMPLES)(card.card)
app.command("report", epilog=report.EXAMPLES)(report.report)
app.command("app", epilog=dashboard.EXAMPLES)(dashboard.app)
app.command("explain", epilog=explain.EXAMPLES)(explain.explain)
app.command("probes", epilog=probes.EXAMPLES)(probes.probes)
app.command("capture", epilog=capture.EXAMPLES)(capture.capture)
app.add_typer(cache.app, name="cache")


def main() -> None:
    """Entry point of the console script."""
    app(prog_name="driftscope")
