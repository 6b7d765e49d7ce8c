"""A diagnosis for JSON and for the run folder."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

from driftscope.runs.run import Run
from driftscope.serving.diagnosis import Diagnosis, Ranked
from driftscope.serving.reading import write_json
from driftscope.serving.words import explanation, finding, headline, next_steps

FILE = "engine.json"


def content(found: Diagnosis) -> dict[str, Any]:
    """Everything, as plain data."""
    told = finding(found)
    named = found.named
    return {
        "outcome": found.outcome,
        "headline": headline(found),
        "explanation": explanation(found) or None,
        "next": next_steps(found),
        "exit_code": found.exit_code,
        "p": found.p,
        "exact": found.exact,
        "position": found.position,
        "more_drafts": found.more_drafts,
        "traffic": {
            "same_prompts": found.traffic.same_prompts, "alike": found.traffic.alike, "max_tokens": found.traffic.max_tokens,
        },
        "engine": found.counters.to_dict(),
        "walk": {**_row(found.declared), "low": list(found.low), "high": list(found.high)},
        "named": None if named is None else _row(named),
        "tied": [_row(part) for part in found.tied],
        "readings": [_row(part) for part in found.ranked],
        "not_walked": [{"name": part.name, "reason": part.reason} for part in found.not_walked],
        "finding": None if told is None else told.to_dict(),
    }  # fmt: skip


def keep(run: Run, found: dict[str, Any]) -> Path | None:
    """Store it beside the run's tables, for the pages; None where the folder cannot be written."""
    file = run.folder / FILE
    with suppress(OSError):
        write_json(file, found)
        return file
    return None


def _row(part: Ranked) -> dict[str, Any]:
    return {
        "name": part.reading.name,
        "switch": part.reading.switch or None,
        "declared": part.reading.declared or None,
        "alternative": part.reading.alternative or None,
        "code": part.reading.code or None,
        "shares": None if part.shares is None else list(part.shares),
        "length": part.length,
        "p": part.p,
        "log_likelihood": part.log_likelihood,
        "excluded": part.excluded,
        "exact": part.exact,
    }
