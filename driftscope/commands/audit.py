"""`driftscope audit`: is this the model that was trained?"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Annotated

import typer

from driftscope.commands import options
from driftscope.commands.guard import Debug, print_json

EXAMPLES = """[bold]Examples[/bold]

[cyan]driftscope audit drafters/eagle3 --target Qwen/Qwen3-8B[/cyan]

Write a copy with what was found put right, as far as its layout can say it:
[cyan]driftscope audit drafters/eagle3 --fix drafters/eagle3-fixed[/cyan]"""


def audit(
    checkpoint: Annotated[
        str, typer.Argument(help="Drafter: a folder, a weight file or a Hub id.", show_default=False)
    ],
    target: Annotated[
        str | None,
        typer.Option(
            "--target", help="Target: a Hugging Face folder or name. [dim]Default: what the config names.[/dim]"
        ),
    ] = None,
    prompts: Annotated[
        Path | None,
        typer.Option("--prompts", help="Prompts: JSONL, text or a chat file. [dim]Default: the shipped ones.[/dim]"),
    ] = None,
    count: Annotated[
        int, typer.Option("--count", min=1, help="How many of them, spread evenly; 16 or more can decide.")
    ] = 48,
    fix: Annotated[
        Path | None,
        typer.Option("--fix", metavar="FOLDER", help="Write a corrected copy of the checkpoint there."),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="List also what was ruled out, and later rounds.")] = False,
    json: options.Json = False,
    max_new_tokens: Annotated[int, typer.Option("--max-new-tokens", min=1, help="Length of a continuation.")] = 128,
    anchors: Annotated[int, typer.Option("--anchors", min=4, help="Anchors of each prompt.")] = 16,
    aux: options.Aux = None,
    carry: options.Carry = None,
    rope_theta: options.RopeTheta = None,
    settings: options.Set = None,
    device: Annotated[str, typer.Option("--device", help="auto, cpu, cuda, cuda:1, ...")] = "auto",
    dtype: Annotated[str, typer.Option("--dtype", help="auto, float32, bfloat16 or float16.")] = "auto",
    revision: options.Revision = None,
    trust_remote_code: options.TrustRemoteCode = False,
    cache_dir: Annotated[
        Path | None, typer.Option("--cache-dir", envvar="DRIFTSCOPE_CACHE", help="Where captures are kept.")
    ] = None,
    debug: Debug = False,
) -> None:
    """Say whether a checkpoint is run as it was trained: every switch against its alternatives, with negative controls.

    Exit code 0: the declared setting holds, 1: something else fits better or the files contradict themselves,
    2: it cannot be told, or could not be run.
    """
    from driftscope.progress import stderr_progress

    switches = options.overrides(aux, carry, rope_theta, settings)
    # Libraries print as they please: stdout is for the result.
    with contextlib.redirect_stdout(sys.stderr), stderr_progress() as progress:
        progress.message("starting")
        from driftscope.audit.run import audit as run_audit

        found = run_audit(
            checkpoint,
            target=target,
            prompts=prompts,
            count=count,
            max_new_tokens=max_new_tokens,
            anchors=anchors,
            device=device,
            dtype=dtype,
            overrides=switches,
            revision=revision,
            trust_remote_code=trust_remote_code,
            cache_dir=cache_dir,
            progress=progress,
        )
        fixed = found.write_fix(fix) if fix is not None and found.faults else None
    if json:
        content = found.to_dict()
        print_json(content if fix is None else {**content, "fix": fixed.to_dict() if fixed else None})
    else:
        from driftscope.audit.view import render_audit, render_fix
        from driftscope.show.terminal import stdout_console

        console = stdout_console()
        render_audit(found, console, every=every)
        if fix is not None:
            render_fix(fixed, console)
    if found.exit_code:
        raise typer.Exit(found.exit_code)
