"""The folder of a run that begins, or goes on: what it says about pair, settings, prompts and machine."""

from __future__ import annotations

import dataclasses
import platform
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from driftscope._version import __version__
from driftscope.captures.capture import Capture
from driftscope.chain.pair import Pair
from driftscope.chain.prompt_chains import Settings
from driftscope.measuring.measure import Prepared
from driftscope.measuring.request import ProbeRequest
from driftscope.runs.run import Run


def start_run(
    request: ProbeRequest, pair: Pair, captures: Sequence[Capture], settings: Settings, prepared: Prepared
) -> Run:
    """Create the run folder, or open the one to go on with after checking that it is the same measurement.

    Raises RunError where `request.resume` finds another measurement in the folder.
    """
    target = pair.target
    languages = {source.prompt.id: source.prompt.language for source in prepared.sources}
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
            "max_new_tokens": request.texts.max_new_tokens,
            "sinks": list(settings.sinks),
            "seed": settings.seed,
            "dtype": str(target.dtype).removeprefix("torch."),
            **prepared.about,
        },
        "prompts": [
            {
                "id": record.prompt_id,
                "category": record.category,
                **({"language": languages[record.prompt_id]} if languages.get(record.prompt_id) else {}),
                "prompt_length": record.prompt_length,
                "text_length": record.length,
                "stopped": record.stopped,
            }
            for record in captures
        ],
    }
    if request.resume and request.out.exists():
        return Run.resume(request.out, **meta)
    return Run.create(request.out, **meta, provenance=provenance(pair, prepared.left_out))


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
