"""The table of steps as plain text, with one step marked."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

from rich.console import Console, RenderableType

from driftscope.runs.naming import short_name
from driftscope.runs.run import Run
from driftscope.show.step_table import step_table

WIDTH = 96
"""Columns: leaves room for what pytest puts in front."""
_MARK = "> "


def plain_text(content: RenderableType, width: int = WIDTH) -> str:
    """As on a terminal without colours."""
    stream = io.StringIO()
    console = Console(file=stream, width=width, force_terminal=False, color_system=None, highlight=False, markup=False)
    console.print(content)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()).strip("\n")


def table_of_steps(summary: Mapping[str, Any], marked: int | None = None) -> str:
    """The steps of a summary; the marked one has `>` in front."""
    console = Console(file=io.StringIO(), width=WIDTH, force_terminal=False, color_system=None)
    table, _ = step_table(summary["steps"], summary["onset"], console)
    lines = plain_text(table).splitlines()
    if marked is None:
        return "\n".join(lines)
    return "\n".join((_MARK if line.split()[:1] == [str(marked)] else "  ") + line for line in lines)


def facts(run: Run) -> str:
    """Which run, drafter and target, on one line."""
    info = run.info
    drafter, target = short_name(info.checkpoint.path), short_name(info.target.name)
    return f"run {run.folder}: {drafter} ({info.checkpoint.layout}), drafting for {target}"
