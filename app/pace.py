"""About how long a measurement takes here, from how long the shards of a run took."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path

from driftscope.app.library import Entry
from driftscope.findings.words import counted
from driftscope.probes import available

CLEAN = "clean"
_PAUSE = 600.0
"""Seconds between two shards beyond which the run stood still, or was gone on with later."""


def seconds_a_pass(folder: Path) -> float | None:
    """Seconds that the clean chains of a prompt took: the median time from the shard before, of whatever probe; pauses are left
    out, and it is None for too few."""
    shards = sorted((written, probe.name) for probe in _folders(folder / "shards") for written in _written(probe))
    gaps = sorted(
        later - earlier
        for (earlier, _), (later, probe) in pairwise(shards)
        if probe == CLEAN and later - earlier < _PAUSE
    )
    return gaps[len(gaps) // 2] if len(gaps) >= 2 else None


def passes(names: Iterable[str], depth: int) -> float:
    """Cost of probes in chain passes, 1 being the clean chains; those that share a shard are measured once."""
    known = available()
    return sum({known[name].shard: known[name].cost(depth) for name in names}.values())


def expected(entry: Entry, probe: str) -> str:
    """In words, for one more probe of a run."""
    info = entry.info
    assert info is not None
    cost = passes([probe], int(info.settings.get("depth") or 8))
    pace = seconds_a_pass(entry.folder)
    prompts = counted(len(info.prompts), "prompt")
    if pace is None:
        return f"{cost:g} times the clean chains of {prompts}; how long those take here is not known"
    return f"about {duration(pace * cost * len(info.prompts))} on this machine, by the pace of this run ({prompts})"


def expected_new(entries: Sequence[Entry], names: Sequence[str], depth: int, tokens: int, prompts: int) -> str:
    """In words, for a new run, from the last run here of which the pace is known."""
    cost = passes(names, depth) * prompts
    for entry in entries:
        settings = entry.info.settings if entry.info is not None else {}
        own, length = settings.get("depth"), settings.get("max_new_tokens")
        pace = seconds_a_pass(entry.folder) if own and length else None
        if pace is not None and own and length:
            seconds = pace * cost * (depth / int(own)) * (tokens / int(length))
            return (
                f"About {duration(seconds)} for {counted(prompts, 'prompt')} on this machine, if it drafts at the pace of"
                f" {entry.id}; the target's texts come on top unless they are in the cache."
            )
    return f"How long it takes here is known once a run was measured: {cost:g} chain passes of {depth} steps."


def duration(seconds: float) -> str:
    """`40 s`, `12 min`, `3.5 h`."""
    if seconds < 90:
        return f"{max(seconds, 1):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _folders(folder: Path) -> list[Path]:
    try:
        return [part for part in folder.iterdir() if part.is_dir() and not part.name.startswith(".")]
    except OSError:
        return []


def _written(folder: Path) -> list[float]:
    found = []
    for part in _folders(folder):
        with contextlib.suppress(OSError):
            found.append(part.stat().st_mtime)
    return found
