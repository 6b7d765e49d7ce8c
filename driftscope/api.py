"""driftscope from Python: load a pair, probe it, open a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from driftscope.audit.short_in_run import audited_boundaries, keep_short_audit
from driftscope.audit.trusting import keep_control, keep_texts
from driftscope.captures.folder import CaptureFolder, open_captures
from driftscope.captures.state_checks import check_states
from driftscope.chain.pair import Pair, as_dtype, load_pair
from driftscope.chain.prompt_chains import Settings
from driftscope.errors import DriftscopeError
from driftscope.figures.running_cost import RunningCost
from driftscope.from_engines.formats import Ids, Last
from driftscope.measuring.capture_prompts import capture_prompts as capture_prompts
from driftscope.measuring.captured_texts import about as about_captures
from driftscope.measuring.captured_texts import captured_sinks, captured_sources, check_probes, ends_of
from driftscope.measuring.estimate import estimate, told
from driftscope.measuring.measure import Bench, Prepared, choose_sinks, in_random_order, run_probes, take_captures
from driftscope.measuring.ray import check_installed, job_of, run_on_ray
from driftscope.measuring.request import ProbeRequest
from driftscope.measuring.start import start_run
from driftscope.probes import DEFAULT, Probe, chosen
from driftscope.probes.base import applicable
from driftscope.progress import NullProgress, ProgressReport
from driftscope.runs.naming import fresh_run
from driftscope.runs.run import Run
from driftscope.target.chat_template import read_template
from driftscope.target.ends import TargetEnds, load_target_ends
from driftscope.target.model import Target, load_target
from driftscope.target.placement import DeviceMap, be_deterministic, dtype_note

__all__ = ["capture", "capture_prompts", "load_pair", "open_run", "probe", "probe_pair"]


def open_run(folder: str | Path) -> Run:
    """Open a run folder for reading.

    Args:
        folder: made by `probe`.

    Returns:
        The run; tables are read when they are asked for.

    Raises:
        RunError: no run, or one of another schema.
    """
    return Run.open(folder)


def capture(
    target: str | Path | Target,
    *,
    out: str | Path,
    source: str | Path | None = None,
    prompts: str | Path | None = None,
    layers: Sequence[int] | None = None,
    drafter: str | Path | None = None,
    max_new_tokens: int = 128,
    chat_template: str | Path | None = None,
    format: str = "auto",
    ids: Ids | None = None,
    last: Last | None = None,
    prompt_tokens: int | None = None,
    limit: int | None = 64,
    whole_target: bool = False,
    device: str = "auto",
    dtype: str = "auto",
    revision: str | None = None,
    trust_remote_code: bool = False,
    progress: ProgressReport | None = None,
) -> CaptureFolder:
    """Put a target's states into a folder that `probe(capture=...)` takes.

    Args:
        target: as `load_pair` takes it.
        out: the folder.
        source: a folder that vLLM, speculators, SpecForge or TorchSpec wrote, whose states are read; of the target only embedding,
            final norm and head are then loaded. Without it the target continues the prompts.
        prompts: a file; with `source`, what tells where a text's answer begins.
        layers: without `source` the boundaries to record beside the final state (None: those that `drafter` reads, else the
            published default); with it, the ids that the peer was given.
        drafter: a checkpoint, whose boundaries are recorded, or that judges those of `source`.
        max_new_tokens, chat_template: of the target's continuation.
        format, ids, last, prompt_tokens, limit: of `source`; see `driftscope.from_engines.make.capture_from`.
        whole_target: load the target whole with `source` too, as a further judge.
        device, dtype, revision, trust_remote_code: as `load_pair` takes them.
        progress: is told how far it is.

    Returns:
        The folder, open for reading.

    Raises:
        DriftscopeError: one line for whatever the user can mend.
    """
    from driftscope.from_engines.make import capture_from, capture_with_target

    report = progress or NullProgress()
    places: dict[str, Any] = {
        "device": device,
        "dtype": as_dtype(dtype),
        "revision": revision,
        "trust_remote_code": trust_remote_code,
    }
    whole = target if isinstance(target, Target) and not isinstance(target, TargetEnds) else None
    name = target.name if isinstance(target, Target) else target
    if source is None or whole_target:
        report.message(f"loading {name}")
        whole = whole or load_target(name, **places)
    if source is None:
        assert whole is not None
        if chat_template is not None:
            whole.tokenizer.chat_template = read_template(Path(chat_template))
        return capture_with_target(
            whole,
            out,
            prompts=prompts,
            boundaries=layers,
            drafter=drafter,
            max_new_tokens=max_new_tokens,
            progress=report,
        )
    report.message(f"loading the ends of {name}")
    ends = target if isinstance(target, TargetEnds) else load_target_ends(name, **places)
    if chat_template is not None:
        ends.tokenizer.chat_template = read_template(Path(chat_template))
    return capture_from(
        source,
        ends,
        out,
        format=format,
        layers=layers,
        ids=ids,
        last=last,
        prompts=prompts,
        prompt_tokens=prompt_tokens,
        drafter=drafter,
        whole=whole,
        max_new_tokens=max_new_tokens,
        limit=limit,
        progress=report,
    )


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
    capture: str | Path | None = None,
    shards: Literal["local", "ray"] = "local",
    device_map: DeviceMap | None = None,
    drafter_device: str | None = None,
    deterministic: bool = False,
    audit: bool = True,
    until: float | None = None,
) -> Run:
    """Probe a drafter checkpoint with its target.

    Args:
        checkpoint: a path or a Hub id.
        target: as `load_pair` takes it.
        prompts: a JSON Lines, JSON, text or Parquet file; the shipped ones without it.
        chat_template: a Jinja file to use instead of the target's own.
        out: the run folder; without one, a fresh one in runs/.
        max_new_tokens: tokens of the target's continuation of each prompt.
        depth: steps of the tables.
        horizon: steps that every anchor must have ahead of it.
        anchors: so many of each prompt, the first ones; None is all.
        device, dtype, overrides, revision, trust_remote_code, device_map, drafter_device: as `load_pair` takes them.
        sink: `auto` detects the target's sinks, `none`, or positions.
        probes: names of probes, or `all`.
        resume: go on with the run in `out`.
        cache_dir: where captures are kept.
        seed: of noise and of a random order of prompts.
        progress: is told how far it is.
        options: of probes, such as `{"noise.alphas": (0.1, 0.5)}`.
        capture: a folder made by `capture()`, whose texts are probed instead of prompts; of the target only embedding, final norm
            and head are loaded.
        shards: `ray` measures the prompts as tasks of a Ray cluster (`driftscope.measuring.ray`).
        deterministic: only kernels whose results repeat bit for bit.
        audit: a short audit first (`driftscope.audit.short`), kept in the run with the finding that it makes.
        until: stop as soon as the 95% interval of drift's cost is no wider than so many accepted tokens; prompts then come in a
            random order that the seed fixes, and `resume` goes on.

    Returns:
        The run, open for reading.

    Raises:
        DriftscopeError: one line for whatever the user can mend; what was measured until then stays in the run folder.
    """
    request = ProbeRequest.of(
        checkpoint,
        out if out is not None else fresh_run(checkpoint),
        target=target,
        prompts=prompts,
        chat_template=chat_template,
        max_new_tokens=max_new_tokens,
        depth=depth,
        horizon=horizon,
        anchors=anchors,
        device=device,
        dtype=dtype,
        sink=sink,
        probes=chosen(probes),
        resume=resume,
        overrides=overrides,
        revision=revision,
        trust_remote_code=trust_remote_code,
        cache_dir=cache_dir,
        seed=seed,
        options=options,
        capture=capture,
        shards=shards,
        device_map=device_map,
        drafter_device=drafter_device,
        deterministic=deterministic,
        audit=audit,
        until=until,
    )
    return measure_request(request, progress)


def measure_request(request: ProbeRequest, progress: ProgressReport | None = None) -> Run:
    """Load what is asked for, measure it, and return the run; what `probe` and the command call.

    Raises as `probe` does.
    """
    report = progress or NullProgress()
    places, texts = request.places, request.texts
    if places.deterministic:
        be_deterministic()
    if not (request.resume and request.out.exists()):
        Run.check_place(request.out)
    captured = None if texts.capture is None else open_captures(texts.capture)
    if request.shards == "ray":
        check_installed()
    report.message(f"loading {request.checkpoint}")
    target = request.target
    if captured is not None:
        check_probes(request.probes)
        target = ends_of(
            captured,
            target,
            device=places.device,
            dtype=as_dtype(places.dtype),
            trust_remote_code=places.trust_remote_code,
        )
        request = replace(request, texts=replace(texts, max_new_tokens=captured.max_new_tokens))
    pair = load_pair(request.checkpoint, target, overrides=request.overrides, **places.of_pair())
    if note := dtype_note(places.dtype, pair.drafter.dtype, pair.drafter.device):
        report.message(note)
    if texts.chat_template is not None:
        pair.target.tokenizer.chat_template = read_template(Path(texts.chat_template))
    return measure_pair(request, pair, report, captured)


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
    captured: CaptureFolder | None = None,
    audit: bool = True,
    until: float | None = None,
) -> Run:
    """Probe a pair that is loaded already.

    Args:
        pair: drafter and target.
        probes: probe objects; none takes the default ones.
        captured: texts to probe instead of prompts, of the pair's target.
        out, prompts, max_new_tokens, depth, horizon, anchors, sink, resume, cache_dir, seed, progress, audit, until: as `probe`
            takes them.

    Returns:
        The run, open for reading.

    Raises:
        DriftscopeError: one line for whatever the user can mend.
    """
    request = ProbeRequest.of(
        pair.checkpoint.path,
        out,
        prompts=prompts,
        max_new_tokens=max_new_tokens,
        depth=depth,
        horizon=horizon,
        anchors=anchors,
        sink=sink,
        probes=probes,
        resume=resume,
        cache_dir=cache_dir,
        seed=seed,
        audit=audit,
        until=until,
    )
    return measure_pair(request, pair, progress or NullProgress(), captured)


def measure_pair(
    request: ProbeRequest, pair: Pair, report: ProgressReport, captured: CaptureFolder | None = None
) -> Run:
    """What is asked for, of a pair that is loaded. captured: texts to probe instead of prompts, of the pair's target."""
    probes, notes = applicable(request.probes, pair)
    if notes and not probes:
        raise DriftscopeError(notes[0])
    asked = request.chains
    longest = pair.drafter.max_steps
    if longest is not None and asked.depth > longest:
        notes.append(
            f"a block of {pair.config.block_size} rows drafts {longest} tokens: depth is {longest}, not {asked.depth}"
        )
        asked = replace(asked, depth=longest)
    for note in notes:
        report.message(note)
    asked = replace(asked, horizon=max(asked.horizon, asked.depth))
    request = replace(request, probes=tuple(probes), chains=asked)
    prepared = (
        prompted_texts(request, pair, report) if captured is None else captured_texts(request, pair, report, captured)
    )
    captures = [source.capture for source in prepared.sources]
    check_states(captures)
    settings = Settings(
        depth=asked.depth,
        horizon=asked.horizon,
        sinks=choose_sinks(pair, captures, prepared.sink),
        anchors=asked.anchors,
        spread=asked.anchors is not None,
        seed=asked.seed,
    )
    run = start_run(request, pair, captures, settings, prepared)
    told_nothing = keep_texts(run, pair, captures, report)
    if request.audit and not told_nothing and all(record.greedy for record in captures):
        keep_short_audit(run, pair, captures, report)
    if not told_nothing:
        keep_control(run, pair, captures, report)
    begun = set(run.probes)
    new = [item for item in probes if item.shard not in begun]
    bench = Bench(pair, settings, request.texts.max_new_tokens, request.texts.cache())
    if any(item.name not in DEFAULT for item in new):
        report.message(told(estimate(pair, new, settings, prompts=len(captures), max_new_tokens=bench.max_new_tokens)))
    if request.shards == "ray":
        run_on_ray(run, bench, prepared.sources, probes, job_of(request, pair), report)
        return run
    watch = RunningCost(asked.depth, request.until)
    watch.go_on(run)
    sources = prepared.sources if request.until is None else in_random_order(prepared.sources, asked.seed)
    left = run_probes(run, bench, sources, probes, report, watch)
    if request.until is not None:
        report.message(watch.conclusion(left))
    return run


def prompted_texts(request: ProbeRequest, pair: Pair, report: ProgressReport) -> Prepared:
    """The target's continuations of the prompts, with every state that the probes and the audit read."""
    extra = {b for item in request.probes for b in item.boundaries(pair)}
    extra |= audited_boundaries(pair, request.texts.prompts) if request.audit else set()
    return take_captures(request, pair, extra, report)


def captured_texts(request: ProbeRequest, pair: Pair, report: ProgressReport, captured: CaptureFolder) -> Prepared:
    """Texts that were captured elsewhere."""
    check_probes(request.probes)
    extra = {b for item in request.probes for b in item.boundaries(pair)}
    sources, skipped = captured_sources(captured, pair, horizon=request.chains.horizon, extra=extra, progress=report)
    sink = captured_sinks(captured, request.chains.sink, report)
    return Prepared(sources, skipped, sink, {"capture": about_captures(captured, sources)})
