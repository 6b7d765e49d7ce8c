"""The folder of a run that begins, or goes on: what it says about pair, settings, prompts and machine."""

from __future__ import annotations

import dataclasses
import platform
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from driftscope._version import __version__
from driftscope.captures.capture import Capture
from driftscope.chain.pair import Pair
from driftscope.chain.prompt_chains import Settings
from driftscope.runs.run import Run
from driftscope.target.prompts import SkippedPrompts


def start_run(
    pair: Pair,
    captures: Sequence[Capture],
    settings: Settings,
    skipped: Mapping[str, int] | SkippedPrompts,
    max_new_tokens: int,
    *,
    out: Path,
    resume: bool,
    about: Mapping[str, Any] | None = None,
) -> Run:
    """Create the run folder, or open the one to go on with after checking that it is the same measurement. about: further
    settings."""
    target = pair.target
    meta: dict[str, Any] = {
        "checkpoint": {
            "path": str(pair.checkpoint.path),
            "sha256": pair.checkpoint.sha256,
            "layout": pair.checkpoint.layout,
            "switches": pair.config.switches(),
            "origins": {name: dataclasses.asdict(origin) for name, origin in pair.config.origins.items()},
            "warnings": list(pair.warnings),
        },
        "target": {
            "name": target.name,
            "fingerprint": target.fingerprint(),
            "layers": target.num_layers,
            "hidden_size": target.hidden_size,
            "sinks": list(settings.sinks),
        },
        "settings": {
            "depth": settings.depth,
            "horizon": settings.horizon,
            "anchors": settings.anchors,
            **({} if settings.anchors is None else {"spread": settings.spread}),
            "max_new_tokens": max_new_tokens,
            "sinks": list(settings.sinks),
            "seed": settings.seed,
            "dtype": str(target.dtype).removeprefix("torch."),
            **(about or {}),
        },
        "prompts": [
            {
                "id": record.prompt_id,
                "category": record.category,
                "prompt_length": record.prompt_length,
                "text_length": record.length,
                "stopped": record.stopped,
            }
            for record in captures
        ],
    }
    if resume and out.exists():
        return Run.resume(out, **meta)
    counts = dict(skipped) if isinstance(skipped, Mapping) else dataclasses.asdict(skipped)
    return Run.create(out, **meta, provenance=provenance(pair, counts))


def provenance(pair: Pair, skipped: Mapping[str, int]) -> dict[str, Any]:
    """Where and with what a run was measured."""
    packages = ("torch", "transformers", "nnsight", "numpy", "scipy")
    return {
        "driftscope": __version__,
        "python": platform.python_version(),
        "packages": {name: version(name) for name in packages},
        "device": str(pair.drafter.device),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": " ".join(sys.argv),
        "skipped_prompts": dict(skipped),
    }
