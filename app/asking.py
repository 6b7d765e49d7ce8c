"""Command lines about a run, with what it was measured with."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path

from driftscope.app.library import Entry
from driftscope.runs.schema import RunInfo

_OWN = {"--probes": 1, "--out": 1, "-o": 1, "--resume": 0, "--json": 0}
"""Options of a recorded command that another one gives anew, and how many values follow them."""
_SETTINGS = {"max_new_tokens": "--max-new-tokens", "depth": "--depth", "horizon": "--horizon"}


def going_on(entry: Entry, probe: str) -> list[str]:
    """The command that measures one more probe of a run, as words: with the prompts and flags of the one that made it."""
    info = entry.info
    assert info is not None
    new = ["--probes", probe, "-o", str(entry.folder), "--resume"]
    recorded = shlex.split(str(info.provenance.get("command", "")))
    if recorded[1:2] == ["probe"]:
        return ["driftscope", "probe", *new, *_others(recorded[2:])]
    given = [
        word for name, flag in _SETTINGS.items() if name in info.settings for word in (flag, str(info.settings[name]))
    ]
    target = ["--target", info.target.name]
    return ["driftscope", "probe", info.checkpoint.path, *target, *new, *given, *switches(info)]


def switches(info: RunInfo) -> list[str]:
    """The switches that the user set for a run, as options."""
    found = []
    for name, value in info.checkpoint.switches.items():
        origin = info.checkpoint.origins.get(name)
        if isinstance(origin, Mapping) and origin.get("source") == "user":
            found.append(f"--set={name}={value if isinstance(value, str) else json.dumps(value)}")
    return found


def local_target(info: RunInfo) -> list[str]:
    """The target as an option, where it is a folder: a name would be asked of a network."""
    return ["--target", info.target.name] if Path(info.target.name).expanduser().is_dir() else []


def _others(words: list[str]) -> Iterator[str]:
    rest = iter(words)
    for word in rest:
        name = word.partition("=")[0]
        if name not in _OWN:
            yield word
        elif "=" not in word:
            for _ in range(_OWN[name]):
                next(rest, None)
