"""driftscope from Python: load a pair, probe it, open a run."""

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
from driftscope.cache import CaptureCache
from driftscope.captures import Capture, capture
from driftscope.engine import choose_sinks, run_probes, take_captures
from driftscope.errors import PromptError
from driftscope.estimate import estimate, told
from driftscope.features import needed_boundaries
from driftscope.naming import fresh_run
from driftscope.pair import Pair, load_pair
from driftscope.probes import DEFAULT, Probe, chosen
from driftscope.probes.options import configured
from driftscope.progress import NullProgress, ProgressReport
from driftscope.prompts import SkippedPrompts, load_prompts, tokenize_prompts
from driftscope.run import Run
from driftscope.subject import Settings
from driftscope.target import Target

__all__ = ["capture_prompts", "load_pair", "open_run", "probe", "probe_pair"]


def open_run(folder: str | Path) -> Run:
    """Open a run folder for reading. RunError when it is none, or one of another schema."""
    return Run.open(folder)


def capture_prompts(
    pair: Pair,
    prompts: str | Path | None = None,
    *,
    max_new_tokens: int = 128,
    boundaries: Sequence[int] = (),
    cache_dir: str | Path | None = None,
) -> list[Capture]:
    """What the pair's target says after each prompt, with the features that the drafter reads: one Capture a prompt.

    prompts: a file, the shipped ones without it; prompts that do not fit into the target are left out. boundaries: further
    ones to record, 0 (embeddings) to the number of layers. Taken from the cache where it is there already. Raises
    PromptError or TargetError in one line.
    """
    target = pair.target
    room = (target.max_positions - max_new_tokens) if target.max_positions else 1 << 30
    loaded = load_prompts(Path(prompts) if prompts is not None else None)
    kept, _ = tokenize_prompts(loaded, target.tokenizer, max_tokens=room, min_tokens=2)
    wanted = sorted({*needed_boundaries(pair.config, target.num_layers), *boundaries})
    cache = CaptureCache(Path(cache_dir) if cache_dir is not None else None)
    return capture(target, kept, max_new_tokens=max_new_tokens, boundaries=wanted, cache=cache)


def probe(
    checkpoint: str | Path,
    *,
    target: str | Path | Target | None = None,
    prompts: str | Path | None = None,
    chat_template: str | Path | None = None,
    out: str | Path | None = None,
    max_new_tokens: int = 128,
    depth: int = 8,
    horizon: int = 16,
    anchors: int | None = None,
    device: str = "auto",
    dtype: str = "auto",
    sink: str | Sequence[int] = "auto",
    probes: Sequence[str] | str = DEFAULT,
    resume: bool = False,
    overrides: Mapping[str, Any] | None = None,
    revision: str | None = None,
    trust_remote_code: bool = False,
    cache_dir: str | Path | None = None,
    seed: int = 0,
    progress: ProgressReport | None = None,
    options: Mapping[str, Any] | None = None,
) -> Run:
    """Probe a drafter checkpoint with its target and return the run.

    out: the run folder; without one, a fresh one in runs/. depth: steps of the tables; horizon: steps that every anchor
    must have ahead of it. sink: `auto` detects the target's sinks, `none`, or positions. chat_template: a Jinja file to use
    instead of the target's own. options: of probes, such as `{"noise.alphas": (0.1, 0.5)}`. Raises a DriftscopeError of one
    line for whatever the user can mend; what was measured until then stays in the run folder.
    """
    report = progress or NullProgress()
    wanted = configured(chosen(probes), options or {})
    folder = Path(out) if out is not None else fresh_run(checkpoint)
    if not (resume and folder.exists()):
        Run.check_place(folder)
    report.message(f"loading {checkpoint}")
    pair = load_pair(
        checkpoint,
        target,
        device=device,
        dtype=dtype,
        overrides=overrides,
        revision=revision,
        trust_remote_code=trust_remote_code,
    )
    if chat_template is not None:
        pair.target.tokenizer.chat_template = read_template(Path(chat_template))
    return probe_pair(
        pair,
        prompts=prompts,
        out=folder,
        max_new_tokens=max_new_tokens,
        depth=depth,
        horizon=horizon,
        anchors=anchors,
        sink=sink,
        probes=wanted,
        resume=resume,
        cache_dir=cache_dir,
        seed=seed,
        progress=report,
    )


def read_template(file: Path) -> str:
    """A chat template from a Jinja file."""
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise PromptError(f"--chat-template {file} cannot be read: {reason}") from None


def probe_pair(
    pair: Pair,
    *,
    out: str | Path,
    prompts: str | Path | None = None,
    max_new_tokens: int = 128,
    depth: int = 8,
    horizon: int = 16,
    anchors: int | None = None,
    sink: str | Sequence[int] = "auto",
    probes: Sequence[Probe] = (),
    resume: bool = False,
    cache_dir: str | Path | None = None,
    seed: int = 0,
    progress: ProgressReport | None = None,
) -> Run:
    """probe() for a pair that is loaded already."""
    report = progress or NullProgress()
    horizon = max(horizon, depth)
    cache = CaptureCache(Path(cache_dir) if cache_dir is not None else None)
    sources, skipped = take_captures(
        pair,
        prompts=prompts,
        max_new_tokens=max_new_tokens,
        horizon=horizon,
        extra={b for item in probes for b in item.boundaries(pair)},
        cache=cache,
        progress=report,
    )
    captures = [source.capture for source in sources]
    sinks = choose_sinks(pair, captures, sink)
    settings = Settings(depth=depth, horizon=horizon, sinks=sinks, anchors=anchors, seed=seed)
    run = start_run(pair, captures, settings, skipped, max_new_tokens, out=Path(out), resume=resume)
    begun = set(run.probes)
    new = [item for item in probes if item.shard not in begun]
    if any(item.name not in DEFAULT for item in new):
        report.message(told(estimate(pair, new, settings, prompts=len(sources), max_new_tokens=max_new_tokens)))
    run_probes(run, pair, sources, settings, probes, max_new_tokens=max_new_tokens, cache=cache, progress=report)
    return run


def start_run(
    pair: Pair,
    captures: Sequence[Capture],
    settings: Settings,
    skipped: Mapping[str, int] | SkippedPrompts,
    max_new_tokens: int,
    *,
    out: Path,
    resume: bool,
) -> Run:
    """Create the run folder, or open the one to go on with after checking that it is the same measurement."""
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
            "max_new_tokens": max_new_tokens,
            "sinks": list(settings.sinks),
            "seed": settings.seed,
            "dtype": str(target.dtype).removeprefix("torch."),
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
