"""Every way in which a command can fail, as one line and an exit code."""

from __future__ import annotations

import contextlib
import json
import math
import shlex
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text
from typer.core import TyperGroup

from driftscope._version import __version__
from driftscope.errors import DriftscopeError

FAILED = 2
INTERRUPTED = 130


@dataclass
class State:
    """What error handling has to know of the command that runs."""

    debug: bool = False
    run: Path | None = None
    """The run folder that is being filled."""


def state(context: typer.Context) -> State:
    """The state of this invocation."""
    root = context.find_root()
    if not isinstance(root.obj, State):
        root.obj = State()
    return root.obj


def _set_debug(context: typer.Context, value: bool) -> bool:
    state(context).debug |= value
    return value


Debug = Annotated[
    bool,
    typer.Option("--debug", envvar="DRIFTSCOPE_DEBUG", callback=_set_debug, help="Show the traceback of an error."),
]


class GuardedGroup(TyperGroup):
    """Exit 2 with one line on stderr for any error, 130 for Ctrl-C."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            fail(_interrupted(state(ctx).run), kind="interrupted")
            raise typer.Exit(INTERRUPTED) from None
        except (typer.Exit, typer.Abort, BrokenPipeError):
            raise
        except DriftscopeError as error:
            if state(ctx).debug:
                traceback.print_exception(error)
            fail(" ".join(str(error).split()))
            raise typer.Exit(FAILED) from None
        except Exception as error:
            # Errors of usage are typer's own to show.
            if hasattr(error, "format_message"):
                raise
            fail(_internal(error, state(ctx)))
            raise typer.Exit(FAILED) from None


def fail(text: str, *, kind: str = "error") -> None:
    """One line on stderr."""
    style = "bold yellow" if kind == "interrupted" else "bold red"
    Console(file=sys.stderr, highlight=False).print(Text.assemble((f"{kind}: ", style), text), soft_wrap=True)


def print_json(content: Any) -> None:
    """JSON on stdout, with null for what is not finite."""
    text = json.dumps(_finite(content), indent=2, ensure_ascii=False, allow_nan=False)
    try:
        print(text)
    except UnicodeEncodeError:
        print(json.dumps(_finite(content), indent=2, allow_nan=False))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _interrupted(run: Path | None) -> str:
    if run is None:
        return "stopped"
    if not (run / "run.json").is_file():
        return (
            "stopped before the run was created; what was captured of the target is kept, so the same command is faster"
        )
    return f"what was measured is kept; go on with: {_resume_command(run)}"


def _resume_command(run: Path) -> str:
    words = ["driftscope", *sys.argv[1:]]
    # What stands behind -- is no option.
    place = words.index("--") if "--" in words else len(words)
    missing = [] if any(word.startswith(("-o", "--out")) for word in words[:place]) else ["-o", str(run)]
    missing += [] if "--resume" in words[:place] else ["--resume"]
    return shlex.join([*words[:place], *missing, *words[place:]])


def _internal(error: Exception, current: State) -> str:
    lines = str(error).splitlines()
    what = f"internal error: {type(error).__name__}" + (f": {lines[0]}" if lines else "")
    trace = "".join(traceback.format_exception(error))
    if current.debug:
        sys.stderr.write(trace)
        return what
    for folder in (current.run, Path(tempfile.gettempdir())):
        if folder is not None and folder.is_dir():
            path = folder / f"driftscope-error-{time.strftime('%Y%m%d-%H%M%S')}.txt"
            with contextlib.suppress(OSError):
                path.write_text(f"driftscope {__version__}\n{shlex.join(sys.argv)}\n\n{trace}", encoding="utf-8")
                return f"{what}; the traceback is in {path} (--debug shows it)"
    sys.stderr.write(trace)
    return what
