"""driftscope from Python: load a pair, probe it, open a run."""

from __future__ import annotations

import dataclasses
import json
import platform
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

import pandas as pd

from driftscope._version import __version__
from driftscope.cache import CaptureCache
from driftscope.captures import Capture, capture
from driftscope.errors import DriftscopeError, PromptError, RunError
from driftscope.features import needed_boundaries
from driftscope.pair import Pair, load_pair
from driftscope.probes import Probe, chosen
from driftscope.prompts import SkippedPrompts, load_prompts, tokenize_prompts
from driftscope.run import Run
from driftscope.sinks import detect_sinks
from driftscope.subject import Settings, Subject
from driftscope.target import Target

__all__ = ["load_pair", "open_run", "probe", "probe_pair"]

MIN_ANCHORS = 4


class Progress(Protocol):
    """Where progress goes; driftscope.progress has one for terminals."""

    def stage(self, name: str, total: int) -> None: ...
    def advance(self, n: int = 1, note: str = "") -> None: ...
    def message(self, text: str) -> None: ...


class Silent:
    """Says nothing."""

    def stage(self, name: str, total: int) -> None:
        pass

    def advance(self, n: int = 1, note: str = "") -> None:
        pass

    def message(self, text: str) -> None:
        pass


def open_run(folder: str | Path) -> Run:
    """Open a run folder for reading. RunError when it is none, or one of another schema."""
    return Run.open(folder)


def probe(
    checkpoint: str | Path,
    *,
    target: str | Path | Target | None = None,
    prompts: str | Path | None = None,
    out: str | Path | None = None,
    max_new_tokens: int = 128,
    depth: int = 8,
    horizon: int = 16,
    anchors: int | None = None,
    device: str = "auto",
    dtype: str = "auto",
    sink: str | Sequence[int] = "auto",
    probes: Sequence[str] | str = ("norms", "attention", "acceptance"),
    resume: bool = False,
    overrides: Mapping[str, Any] | None = None,
    revision: str | None = None,
    trust_remote_code: bool = False,
    cache_dir: str | Path | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Run:
    """Probe a drafter checkpoint with its target and return the run.

    out: the run folder; without one, runs/<checkpoint>. depth: steps of the tables; horizon: steps that every anchor
    must have ahead of it. sink: `auto` detects the target's sinks, `none`, or positions. Raises a DriftscopeError of one
    line for whatever the user can mend; what was measured until then stays in the run folder.
    """
    report = progress or Silent()
    wanted = chosen(probes)
    folder = Path(out) if out is not None else Path("runs") / Path(checkpoint).stem
    if not resume and folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise RunError(f"{folder} exists: use --resume to go on with it or another -o")
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
    progress: Progress | None = None,
) -> Run:
    """probe() for a pair that is loaded already."""
    report = progress or Silent()
    horizon = max(horizon, depth)
    captures, skipped = take_captures(
        pair,
        prompts=prompts,
        max_new_tokens=max_new_tokens,
        horizon=horizon,
        extra={b for item in probes for b in item.boundaries(pair)},
        cache_dir=cache_dir,
        progress=report,
    )
    sinks = choose_sinks(pair, captures, sink)
    settings = Settings(depth=depth, horizon=horizon, sinks=sinks, anchors=anchors, seed=seed)
    run = start_run(pair, captures, settings, skipped, max_new_tokens, out=Path(out), resume=resume)
    shards: dict[str, Probe] = {}
    for item in probes:
        shards.setdefault(item.shard, item)
    report.stage("probing", len(captures) * len(shards))
    for record in captures:
        # One subject a prompt: its prefix pass and clean chains serve every probe.
        subject = Subject(pair, record, settings)
        for item in shards.values():
            if not run.done(item.shard, record.prompt_id):
                tables = item.measure(subject)
                run.write_shard(item.shard, record.prompt_id, {**tables, "variants": variant_rows(item, pair)})
            report.advance(note=f"{record.prompt_id} {item.shard}")
    return run


def take_captures(
    pair: Pair,
    *,
    prompts: str | Path | None,
    max_new_tokens: int,
    horizon: int,
    extra: set[int],
    cache_dir: str | Path | None,
    progress: Progress,
) -> tuple[list[Capture], dict[str, int]]:
    """The captures of all usable prompts and how many prompts were left out, by reason."""
    target = pair.target
    room = target.max_positions
    kept, skipped = tokenize_prompts(
        load_prompts(Path(prompts) if prompts is not None else None),
        target.tokenizer,
        max_tokens=(room - max_new_tokens) if room else 1 << 30,
        min_tokens=2,
    )
    begun = False

    def tell(stage: str, done: int, total: int) -> None:
        nonlocal begun
        if not begun:
            progress.stage("capturing target", total)
            begun = True
        if stage == "record":
            progress.advance()

    boundaries = sorted({*needed_boundaries(pair.config, target.num_layers), *extra})
    cache = CaptureCache(Path(cache_dir) if cache_dir is not None else None)
    captures = capture(target, kept, max_new_tokens=max_new_tokens, boundaries=boundaries, cache=cache, progress=tell)
    usable = [record for record in captures if record.new_tokens - horizon >= MIN_ANCHORS]
    short = len(captures) - len(usable)
    if not usable:
        raise PromptError(
            f"all {len(captures)} continuations are shorter than horizon {horizon} + {MIN_ANCHORS} tokens; "
            "use other prompts, a larger --max-new-tokens or a smaller --depth"
        )
    counts = {**dataclasses.asdict(skipped), "short_continuation": short}
    told = {name.replace("_", " "): count for name, count in counts.items() if count}
    if told:
        progress.message("prompts left out: " + ", ".join(f"{count} {name}" for name, count in told.items()))
    return usable, counts


def choose_sinks(pair: Pair, captures: Sequence[Capture], sink: str | Sequence[int]) -> tuple[int, ...]:
    """Sink positions: detected on the target, none, or as given."""
    if sink == "auto":
        return detect_sinks(pair.target, captures).positions
    if sink == "none":
        return ()
    try:
        positions = sink.split(",") if isinstance(sink, str) else sink
        return tuple(sorted({int(position) for position in positions}))
    except ValueError:
        raise DriftscopeError(f"--sink {sink} is not known; use auto, none or positions such as 0,1") from None


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


def variant_rows(item: Probe, pair: Pair) -> pd.DataFrame:
    """The `variants` table of one probe."""
    return pd.DataFrame(
        [
            {
                "variant": variant.name,
                "probe": item.shard,
                "kind": variant.kind,
                "parameters": json.dumps(variant.parameters),
            }
            for variant in item.variants(pair)
        ]
    )
