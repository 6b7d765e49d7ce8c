"""`driftscope inspect`: how a checkpoint is read, without running it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from driftscope.commands import options
from driftscope.commands.guard import FAILED, Debug, fail, print_json
from driftscope.errors import TargetError

if TYPE_CHECKING:
    from rich.console import Console

EXAMPLES = """[bold]Examples[/bold]

[cyan]driftscope inspect drafters/eagle3[/cyan]

Does it fit this target, and which of its layers does it read?
[cyan]driftscope inspect drafters/eagle3 --target Qwen/Qwen3-8B[/cyan]"""


def inspect(
    checkpoint: Annotated[
        str,
        typer.Argument(metavar="CHECKPOINT", help="Drafter: a folder, a weight file or a Hub id.", show_default=False),
    ],
    target: Annotated[
        str | None, typer.Option("--target", help="Target to check it against; only its config is read.")
    ] = None,
    json: options.Json = False,
    aux: options.Aux = None,
    carry: options.Carry = None,
    rope_theta: options.RopeTheta = None,
    settings: options.Set = None,
    revision: options.Revision = None,
    trust_remote_code: options.TrustRemoteCode = False,
    debug: Debug = False,
) -> None:
    """Show how a drafter checkpoint is read.

    Layout, switches and where each value came from, tensors, draft vocabulary, and what engines would make of it.
    No target is needed and large weights are not loaded. Exit code 0: it would run, 2: it would not.
    """
    switches = options.overrides(aux, carry, rope_theta, settings)
    from driftscope.checkpoints.inspection import inspect_checkpoint

    config = None if target is None else _target_config(target, trust_remote_code)
    found = inspect_checkpoint(checkpoint, overrides=switches, revision=revision, target_config=config).to_dict()
    if json:
        print_json(found)
    else:
        from driftscope.show.terminal import stdout_console

        _render(found, stdout_console())
    if found["problems"]:
        fail(found["problems"][0])
        raise typer.Exit(FAILED)


def _target_config(target: str, trust_remote_code: bool) -> Any:
    from transformers import AutoConfig

    try:
        return AutoConfig.from_pretrained(target, trust_remote_code=trust_remote_code)
    except (OSError, ValueError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise TargetError(f"no config of the target {target}: {reason}") from error


def _render(found: dict[str, Any], console: Console) -> None:
    from driftscope.show.inspection import render_inspection

    render_inspection(found, console)
