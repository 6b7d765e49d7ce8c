"""The line of a run in the table of runs. It takes longer than a look should, hence it is kept on disk."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import platformdirs

from driftscope._version import __version__
from driftscope.chain.patches import FACTORS, REASONS
from driftscope.errors import DriftscopeError, RunError
from driftscope.files.json import json_object
from driftscope.findings.thresholds import load
from driftscope.runs.run import Run
from driftscope.runs.summary import counts
from driftscope.show.report.content import RunPart

Digest = dict[str, Any]
_FORM = 4
"""Goes into every key: raise it when a digest holds something else than before."""
_COST = ("actual", "undrifted", "cost", "share", "depth", "anchors", "prompts", "served")


def digest(run: Run, part: RunPart) -> Digest:
    """Verdict, onsets, codes and lengths of a run, ready for JSON; `part` is what the report says of it."""
    summary = run.summary()
    last = summary["steps"][-1] if summary["steps"] else {}
    return {
        "kind": part.verdict.kind,
        "headline": part.verdict.headline,
        "cause": part.verdict.cause,
        "cost": _cost(summary),
        "growth": last.get("growth"),
        "displacement": last.get("displacement"),
        "onset": dict(part.assessment.onsets),
        "onset_spread": {key: dict(spread) for key, spread in part.assessment.spreads.items()},
        "codes": [finding.code for finding in part.assessment.wrong],
        "served": summary["acceptance_length"].get("served"),
        "steps": len(summary["steps"]),
        "prompts": counts(run)["prompts"],
        "left_out": [str(why) for why in run.left_out.values()],
    }


def _cost(summary: Mapping[str, Any]) -> Digest | None:
    """What drift costs, by path, and why chains end; None where that was not measured."""
    cost = summary.get("drift_cost")
    if not cost:
        return None
    reasons = summary.get("rejections", {})
    return {
        **{name: cost[name] for name in _COST if name in cost},
        "paths": {name: cost[name]["shapley"] for name in FACTORS if "shapley" in cost.get(name, {})},
        "reasons": {name: reasons[name] for name in REASONS if name in reasons},
        "rejected": reasons.get("rejected"),
    }


def stored(signature: str) -> Digest | None:
    """The digest that was kept of a run with this signature."""
    try:
        return json_object(_file(signature), RunError)
    except (OSError, RunError):
        return None


def store(signature: str, found: Digest) -> None:
    """Keep a digest; a folder that cannot be written costs only time."""
    file = _file(signature)
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        temporary = file.with_suffix(f".{os.getpid()}")
        temporary.write_text(json.dumps(found), encoding="utf-8")
        os.replace(temporary, file)


def cache_folder() -> Path:
    """Where the app keeps what it computed."""
    return Path(os.environ.get("DRIFTSCOPE_CACHE") or platformdirs.user_cache_dir("driftscope")) / "app"


def _file(signature: str) -> Path:
    key = hashlib.sha256(f"{signature} {__version__} {_FORM} {_limits()}".encode()).hexdigest()[:32]
    return cache_folder() / "digests" / f"{key}.json"


@lru_cache(maxsize=1)
def _limits() -> str:
    """The thresholds in force, which decide what a digest says."""
    try:
        return json.dumps(dict(load()), sort_keys=True)
    except DriftscopeError:
        return ""
