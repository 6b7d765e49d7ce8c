"""Options that are more than a word: switches of the drafter, sink positions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from driftscope.errors import DriftscopeError

SWITCHES = "Switches of the drafter"
PLACES = "Model and machine"

Aux = Annotated[
    str | None,
    typer.Option("--aux", metavar="B,B,B", help="Target boundaries that it reads.", rich_help_panel=SWITCHES),
]
Carry = Annotated[
    Literal["pre", "post"] | None,
    typer.Option("--carry", help="State handed to the next step: before or after the norm.", rich_help_panel=SWITCHES),
]
RopeTheta = Annotated[
    float | None, typer.Option("--rope-theta", help="Base of its rotary embedding.", rich_help_panel=SWITCHES)
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Any other switch, as `driftscope inspect` names it; can be repeated.",
        rich_help_panel=SWITCHES,
    ),
]
Revision = Annotated[
    str | None, typer.Option("--revision", help="Revision of a checkpoint on a Hub.", rich_help_panel=PLACES)
]
TrustRemoteCode = Annotated[
    bool,
    typer.Option("--trust-remote-code", help="Let the target's repository run its own code.", rich_help_panel=PLACES),
]
Thresholds = Annotated[
    Path | None,
    typer.Option(
        "--thresholds",
        metavar="FILE",
        help="TOML with limits of findings. [dim]Default: the nearest pyproject.toml.[/dim]",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout instead of tables.")]


def overrides(
    aux: str | None, carry: str | None, rope_theta: float | None, settings: Sequence[str] | None
) -> dict[str, Any]:
    """The switches that the user set, by their names in DrafterConfig. Raises DriftscopeError."""
    chosen: dict[str, Any] = {}
    for setting in settings or ():
        name, equals, value = setting.partition("=")
        if not equals or not name.strip() or not value.strip():
            raise DriftscopeError(f"--set {setting} is not NAME=VALUE")
        chosen[name.strip()] = switch_value(value.strip())
    if aux is not None:
        chosen["aux_boundaries"] = positions(aux, "--aux", "give boundaries such as 2,15,27")
    if carry is not None:
        chosen["carry"] = carry
    if rope_theta is not None:
        chosen["rope.theta"] = rope_theta
    return chosen


def switch_value(text: str) -> Any:
    """A value as a user writes it: true/yes, false/no, none, a number, JSON, numbers with commas, or a word."""
    words = {"true": True, "yes": True, "false": False, "no": False, "none": None, "null": None}
    if text.lower() in words:
        return words[text.lower()]
    if "," in text and text[0] not in "[{":
        return tuple(switch_value(part.strip()) for part in text.split(","))
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return tuple(value) if isinstance(value, list) else value


def positions(text: str, option: str, advice: str) -> tuple[int, ...]:
    """Whole numbers with commas. Raises DriftscopeError."""
    try:
        numbers = tuple(int(part) for part in text.split(","))
    except ValueError:
        numbers = ()
    if not numbers or min(numbers) < 0:
        raise DriftscopeError(f"{option} {text} is not known: {advice}")
    return numbers


def sink(text: str) -> str | tuple[int, ...]:
    """`auto`, `none` or positions. Raises DriftscopeError."""
    return text if text in ("auto", "none") else positions(text, "--sink", "give auto, none or positions such as 0,1")
