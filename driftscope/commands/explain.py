"""`driftscope explain`: what a code of a finding means."""

from __future__ import annotations

from typing import Annotated

import typer

from driftscope.commands import options
from driftscope.commands.guard import Debug, print_json

EXAMPLES = """[bold]Examples[/bold]

All codes:
[cyan]driftscope explain[/cyan]

What it means, how it is measured, beyond which limit and why, and what to try:
[cyan]driftscope explain DS101[/cyan]"""


def explain(
    code: Annotated[
        str | None, typer.Argument(metavar="[CODE]", help="Code of a finding, such as DS101.", show_default=False)
    ] = None,
    thresholds: options.Thresholds = None,
    json: options.Json = False,
    debug: Debug = False,
) -> None:
    """Explain the code of a finding, or list all codes."""
    import dataclasses

    from driftscope.findings import definition, definitions, load
    from driftscope.findings.thresholds import definition as threshold
    from driftscope.findings.view import render_list, render_page
    from driftscope.show.terminal import stdout_console

    values = load(thresholds)
    shown = list(definitions().values()) if code is None else [definition(code)]
    if json:
        content = [
            {
                **dataclasses.asdict(part),
                "kind": part.kind,
                "thresholds": {
                    name: {**dataclasses.asdict(threshold(name)), "value": values[name]} for name in part.thresholds
                },
            }
            for part in shown
        ]
        print_json(content if code is None else content[0])
    elif code is None:
        render_list(shown, stdout_console())
    else:
        render_page(shown[0], values, stdout_console())
