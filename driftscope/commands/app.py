"""`driftscope app`: the runs in a browser."""

from __future__ import annotations

import json
import os
import secrets
import socket
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from driftscope.commands.guard import Debug, fail
from driftscope.errors import DriftscopeError

EXAMPLES = """[bold]Examples[/bold]

Every run in runs/:
[cyan]driftscope app[/cyan]

These runs, on another port:
[cyan]driftscope app runs/eagle3 runs/eagle3.1 --port 8600[/cyan]"""

LOCAL = "127.0.0.1"


def app(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="RUN|DIR...",
            help="Run folders, or folders with runs. [dim]Default: runs.[/dim]",
            show_default=False,
        ),
    ] = None,
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="Where it listens.")] = 8501,
    host: Annotated[
        str, typer.Option("--host", help="Address to bind to; others than this machine's are open to all.")
    ] = LOCAL,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-host",
            metavar="NAME",
            help="Also answer requests for this host name. [dim]Default: names of this machine and --host.[/dim]",
        ),
    ] = None,
    files: Annotated[
        list[Path] | None,
        typer.Option(
            "--files",
            metavar="DIR",
            help="Also read checkpoints, targets and prompts below this folder."
            " [dim]Default: the runs and the working directory.[/dim]",
        ),
    ] = None,
    allow_start: Annotated[
        bool,
        typer.Option(
            "--allow-start",
            help="With another --host: let whoever has the printed address start measurements.",
        ),
    ] = False,
    debug: Debug = False,
) -> None:
    """Show runs in a browser: where drift starts, what suppresses it, down to the single token; or start a run there.

    Listens on this machine only, asks nothing of a network and reports nothing to anybody.
    """
    for path in paths or ():
        if not path.exists():
            raise DriftscopeError(f"{path}: no such folder; name run folders, or folders that hold some")
    for path in files or ():
        if not path.is_dir():
            raise DriftscopeError(
                f"--files {path}: no such folder; name one that holds checkpoints, targets or prompts"
            )
    from driftscope.app.library import PATHS

    os.environ[PATHS] = json.dumps([str(path) for path in paths or ()])
    _rights(host, port, allow_host or (), files or (), allow_start)
    raise typer.Exit(_run(streamlit_arguments(port, host)))


def _rights(host: str, port: int, more: Sequence[str], files: Sequence[Path], start: bool) -> None:
    """What browsers may do, handed over in the environment."""
    from driftscope.app import hosts, rights

    os.environ[hosts.HOSTS] = json.dumps(hosts.allowed_hosts(host, more))
    os.environ[rights.FOLDERS] = json.dumps([str(path) for path in files])
    local = host in hosts.LOCAL
    token = secrets.token_urlsafe(24) if start and not local else ""
    os.environ[rights.STARTING] = "yes" if local else "token" if token else "no"
    os.environ[rights.TOKEN] = token
    if local:
        return
    can = "read these runs" if token else "read these runs; starting new ones is off (--allow-start)"
    fail(f"everybody who can reach {host}:{port} can {can}", kind="warning")
    if token:
        fail(f"who opens http://{_shown(host)}:{port}/?token={token} can start new ones", kind="warning")


def _shown(host: str) -> str:
    """A host as part of an address."""
    from driftscope.app.hosts import ANY

    name = socket.gethostname() if host in ANY else host
    return f"[{name}]" if ":" in name else name


def streamlit_arguments(port: int, host: str) -> list[str]:
    """The command line of Streamlit."""
    from driftscope.app.look import STREAMLIT_THEME

    spec = find_spec("driftscope.app.server")
    assert spec is not None
    assert spec.origin is not None
    headless = sys.platform.startswith("linux") and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    options = {
        "server.address": host,
        "server.port": str(port),
        "server.headless": str(headless).lower(),
        "server.fileWatcherType": "none",
        "server.showEmailPrompt": "false",
        "browser.gatherUsageStats": "false",
        "client.toolbarMode": "minimal",
        "client.showErrorDetails": "none",
        "runner.magicEnabled": "false",
        **STREAMLIT_THEME,
    }
    return ["streamlit", "run", spec.origin, *(f"--{name}={value}" for name, value in options.items())]


def _run(arguments: list[str]) -> int:
    """Streamlit in this process, so that Ctrl-C ends it."""
    from streamlit.web import cli

    sys.argv = arguments
    try:
        cli.main(standalone_mode=False)
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0
