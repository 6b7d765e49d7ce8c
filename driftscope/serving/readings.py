"""Every reading of the checkpoint, walked over the run's texts, and kept in the run folder: the next counters cost nothing."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from driftscope.audit.hypotheses import Hypothesis, hypotheses
from driftscope.audit.refusal import check_audited
from driftscope.audit.run import facts
from driftscope.audit.setting import Setting
from driftscope.errors import CheckpointError, DriftscopeError, RunError
from driftscope.files.json import json_object
from driftscope.progress import ProgressReport
from driftscope.runs.prompt_sums import chains
from driftscope.runs.run import Run
from driftscope.runs.summary import CLEAN
from driftscope.serving.texts import Places, pair_of, texts_of
from driftscope.stats.walks import PromptWalk, Walks

DECLARED = "declared"
"""The reading of the run itself."""
_SCHEMA = 1
_FILE = "readings.json"
_LARGEST = 64 * 2**20


@dataclass(frozen=True)
class Reading:
    """One way of reading the checkpoint, and what it predicts."""

    name: str
    switch: str = ""
    declared: str = ""
    alternative: str = ""
    code: str = ""
    """DS2xx of the switch."""
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
            f"run {run.folder} measured some anchors of each prompt only, and a served walk needs all: probe again without --anchors"
        )
    about = {prompt.id: prompt for prompt in run.info.prompts}
    parts = []
    for name, part in zip(found.prompts, found.by_prompt(), strict=True):
        known = about[name]
        parts.append(
            PromptWalk(name, known.category or "", known.text_length - known.prompt_length, found.length[part])
        )
    return Walks(int(rows["step"].max()), tuple(parts))


def readings(
    run: Run, depth: int, *, places: Places | None = None, progress: ProgressReport, anchors: int | None = None
) -> list[Reading]:
    """The declared reading first, then every hypothesis of the audit that an engine could run.

    depth: drafted tokens of a round. Walks that the run folder holds are taken from there. Raises a DriftscopeError where the pair
    cannot be loaded, or is of a kind that is not audited.
    """
    key = {
        "checkpoint": run.info.checkpoint.sha256,
        "target": run.info.target.fingerprint,
        "prompts": len(run.info.prompts),
    }
    file = run.folder / "engine" / _FILE
    held = _held(file, key)
    if held is not None and held[0].walks is not None and held[0].walks.depth >= depth:
        return held
    made = _walked(run, depth, places or Places(), progress, anchors)
    with suppress(OSError):
        _keep(file, key, made)
    return made


def _walked(run: Run, depth: int, places: Places, progress: ProgressReport, anchors: int | None) -> list[Reading]:
    from driftscope.audit.walking import Walker

    progress.message(f"loading {run.info.checkpoint.path}")
    pair = pair_of(run, places)
    check_audited(pair.config)
    setting = Setting(pair.config, pair.checkpoint.weights)
    target = facts(pair.target, pair.checkpoint.raw_config)
    # What a row is compared with is no switch of an engine.
    tried = [h for h in hypotheses(setting, target) if h.reach != "labels" and h.alternative != "none"]
    settings = [setting, *(h.apply(setting) for h in tried if not h.ruled_out)]
    boundaries = sorted({b for item in settings for b in item.boundaries(target.num_layers)})
    captures = texts_of(run, pair, boundaries, places, progress)
    walker = Walker(
        captures, depth, target.embedding, target.head, pair.target.dtype, pair.drafter.device, anchors=anchors
    )
    setting = walker.cast(setting)
    progress.stage("walking every reading", len(tried) + 1)
    found = [Reading(DECLARED, walks=walker.walk(setting))]
    progress.advance(note=DECLARED)
    for hypothesis in tried:
        found.append(_reading(walker, setting, hypothesis))
        progress.advance(note=hypothesis.name)
    return found


def _reading(walker: Any, setting: Setting, hypothesis: Hypothesis) -> Reading:
    about = Reading(
        hypothesis.name, hypothesis.switch, hypothesis.declared, hypothesis.alternative, hypothesis.code,
        reason=hypothesis.ruled_out,
    )  # fmt: skip
    if hypothesis.ruled_out:
        return about
    try:
        return replace(about, walks=walker.walk(setting, hypothesis))
    except (CheckpointError, DriftscopeError) as error:
        return replace(about, reason=str(error))


def _held(file: Path, key: dict[str, Any]) -> list[Reading] | None:
    """What an earlier call kept, None where it is of something else or damaged."""
    try:
        content = json_object(file, RunError, limit=_LARGEST)
        if content["schema"] != _SCHEMA or content["of"] != key:
            return None
        return from_content(content)
    except (OSError, RunError, KeyError, TypeError, ValueError):
        return None


def from_content(content: dict[str, Any]) -> list[Reading]:
    """Readings as `to_content` writes them. Raises KeyError, TypeError or ValueError for anything else."""
    depth, prompts = int(content["depth"]), content["prompts"]
    found = []
    for part in content["readings"]:
        walks = None
        if part["accepted"] is not None:
            texts = zip(prompts, part["accepted"], strict=True)
            walks = Walks(depth, tuple(PromptWalk.of(p["id"], p["category"], p["new_tokens"], d) for p, d in texts))
        words = {name: str(part[name]) for name in ("name", "switch", "declared", "alternative", "code", "reason")}
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
                **{
                    name: getattr(part, name)
                    for name in ("name", "switch", "declared", "alternative", "code", "reason")
                },
                "accepted": None if part.walks is None else [prompt.digits for prompt in part.walks.prompts],
            }
            for part in made
        ],
    }


def _keep(file: Path, key: dict[str, Any], made: Sequence[Reading]) -> None:
    write_json(file, {"schema": _SCHEMA, "of": key, **to_content(made)})


def write_json(file: Path, content: dict[str, Any]) -> None:
    """Whole or not at all. Raises OSError."""
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_name(f".new-{uuid.uuid4().hex}")
    try:
        partial.write_text(json.dumps(content) + "\n", encoding="utf-8")
        os.replace(partial, file)
    finally:
        partial.unlink(missing_ok=True)
