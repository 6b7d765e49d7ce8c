"""One drafter under several targets, on a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from driftscope.compare.targets import OnTarget
from driftscope.findings.words import plain
from driftscope.stats.intervals import Interval

_COLOURS = {"keep": "green", "adapt": "yellow", "retrain": "red", "cannot tell": "blue"}


def render_targets(found: Sequence[OnTarget], console: Console) -> None:
    """A row per target, features moved per boundary, then a sentence each."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False, header_style="bold")
    table.add_column("target", overflow="fold")
    for header in ("agrees at step 1", "kept", "loss at step 1", "rise, nats"):
        table.add_column(header, justify="right")
    table.add_column("features, RMS", overflow="fold")
    table.add_column("drafter")
    for place, part in enumerate(found):
        moved = ", ".join(f"b{b} x{plain(interval.mean)}" for b, interval in (part.rms or {}).items())
        figures = [_told(value) for value in (part.agreement, part.kept, part.loss, part.loss_rise)]
        advice = Text("-", "dim") if place == 0 else Text(part.advice, _COLOURS[part.advice])
        table.add_row(Text(part.target, "bold"), *figures, moved or "-", advice)
    console.print(table)
    console.print(Text("kept: share of the first target's agreement; with 95% intervals over prompts", "dim"))
    for part in found[1:]:
        console.print(Text(f"{part.sentence}.", _COLOURS[part.advice]), soft_wrap=True)


def _told(interval: Interval | None) -> str:
    if interval is None:
        return "-"
    ends = "" if interval.low is None or interval.high is None else f" {plain(interval.low)}..{plain(interval.high)}"
    return f"{plain(interval.mean)}{ends}"
