"""One way of reading a checkpoint and what it accepts; the run's own, from its tables. Without torch."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from driftscope.errors import RunError
from driftscope.files.json import json_object
from driftscope.runs.prompt_sums import chains
from driftscope.runs.run import Run
from driftscope.runs.summary import CLEAN
from driftscope.stats.walks import PromptWalk, Walks

DECLARED = "declared"
"""The reading of the run itself."""
KV = "draft KV"
"""Stands for the switch of a fault that is the engine's own."""
_SCHEMA = 2
"""Raise it when there are further readings: walks of those that were kept stay."""
_FILE = "readings.json"
_LARGEST = 64 * 2**20
_NAMES = ("name", "switch", "declared", "alternative", "code", "words", "look_at", "reason")


@dataclass(frozen=True)
class Reading:
    """One way of reading the checkpoint, and what it predicts."""

    name: str
    switch: str = ""
    declared: str = ""
    alternative: str = ""
    code: str = ""
    """DS2xx of the switch."""
    words: str = ""
    """Of a fault that is an engine's own: what it does, the end of a sentence that begins with "the engine"."""
    look_at: str = ""
    """Where to look in an engine, if no switch says it."""
    walks: Walks | None = None
    reason: str = ""
    """Why it was not walked."""


def walk_of(run: Run) -> Walks:
    """The walk that the run measured, from its tables alone.

    Raises RunError where acceptance was not measured, or not at consecutive anchors.
    """
    columns = ["variant", "feed", "prompt", "anchor", "step", "loop", "accepted"]
    rows = run.table("anchors", CLEAN, columns=columns)
    rows = rows[(rows["variant"] == CLEAN) & (rows["feed"] == "drafted")]
    if rows.empty or rows["accepted"].isna().all():
        raise RunError(f"run {run.folder} holds no accepted tokens: probe it again, with acceptance among --probes")
    found = chains(rows)
    if not found.consecutive:
        raise RunError(
            f"run {run.folder} measured some anchors of each prompt only, and a served walk needs all: probe"
            f" again without --anchors"
        )
    about = {prompt.id: prompt for prompt in run.info.prompts}
    parts = []
    for name, part in zip(found.prompts, found.by_prompt(), strict=True):
        known = about[name]
        parts.append(
            PromptWalk(name, known.category or "", known.text_length - known.prompt_length, found.length[part])
        )
    return Walks(int(rows["step"].max()), tuple(parts))


def held_readings(run: Run, depth: int) -> tuple[list[Reading], bool]:
    """What an earlier call kept of the same run, and whether that is all; nothing where it is of something else or damaged."""
    try:
        content = json_object(run.folder / "engine" / _FILE, RunError, limit=_LARGEST)
        found = from_content(content)
        # A fault that leaves holes behind a round is walked for one number of drafted tokens.
        if content["of"] != _key(run) or content["depth"] != depth or found[0].name != DECLARED:
            return [], False
        return found, content["schema"] == _SCHEMA
    except (OSError, RunError, KeyError, TypeError, ValueError, IndexError):
        return [], False


def keep_readings(run: Run, made: Sequence[Reading]) -> None:
    """Store them in the run folder, if it can be written."""
    with suppress(OSError):
        write_json(run.folder / "engine" / _FILE, {"schema": _SCHEMA, "of": _key(run), **to_content(made)})


def _key(run: Run) -> dict[str, Any]:
    info = run.info
    return {
        "checkpoint": info.checkpoint.sha256, "target": info.target.fingerprint, "prompts": len(info.prompts),
    }  # fmt: skip


def from_content(content: dict[str, Any]) -> list[Reading]:
    """Readings as `to_content` writes them. Raises KeyError, TypeError or ValueError for anything else."""
    depth, prompts = int(content["depth"]), content["prompts"]
    found = []
    for part in content["readings"]:
        walks = None
        if part["accepted"] is not None:
            texts = zip(prompts, part["accepted"], strict=True)
            walks = Walks(depth, tuple(PromptWalk.of(p["id"], p["category"], p["new_tokens"], d) for p, d in texts))
        words = {name: str(part[name]) for name in _NAMES}
        found.append(Reading(**words, walks=walks))
    return found


def to_content(made: Sequence[Reading]) -> dict[str, Any]:
    """For JSON: a digit an anchor."""
    first = made[0].walks
    assert first is not None
    return {
        "depth": first.depth,
        "prompts": [{"id": p.prompt, "category": p.category, "new_tokens": p.new_tokens} for p in first.prompts],
        "readings": [
            {
                **{name: getattr(part, name) for name in _NAMES},
                "accepted": None if part.walks is None else [prompt.digits for prompt in part.walks.prompts],
            }
            for part in made
        ],
    }


def write_json(file: Path, content: dict[str, Any]) -> None:
    """Whole or not at all. Raises OSError."""
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_name(f".new-{uuid.uuid4().hex}")
    try:
        partial.write_text(json.dumps(content) + "\n", encoding="utf-8")
        os.replace(partial, file)
    finally:
        partial.unlink(missing_ok=True)
