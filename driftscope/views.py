"""What is reached from a run but built on runs: `driftscope` itself, which may import everything, puts it here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

VIEWS: dict[str, Callable[..., Any]] = {}
"""`summary`: (run, depth) -> its figures; `charts`: (run) -> its charts by name; `tables`: () -> the tables that probes declare, by
name."""
