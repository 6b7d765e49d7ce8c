"""The shards of a run as tasks of a Ray cluster: one task a prompt. A worker that is lost costs its prompt another try.

The run folder is written here alone, so that no file system need be shared; a checkpoint or target given as a path must be
found at that path by every worker.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from driftscope.captures.cache import CaptureCache
from driftscope.chain.pair import Pair, as_dtype, load_pair
from driftscope.chain.prompt_chains import Settings
from driftscope.errors import DriftscopeError, RunError
from driftscope.measuring.measure import Bench, Tables, Work, lacking, measured
from driftscope.measuring.request import ProbeRequest
from driftscope.probes import ConditionProbe, Probe
from driftscope.progress import ProgressReport
from driftscope.runs.run import Run
from driftscope.target.ends import load_target_ends
from driftscope.target.model import load_target

TRIES = 4
"""How often a prompt is begun where workers are lost, before the run stops; what is there stays."""
_AHEAD = 2
"""Prompts per processor of the cluster that are sent ahead, so that not all captures lie in memory at once."""


@dataclass(frozen=True)
class Job:
    """How a worker loads the pair; the same in every task of a run."""

    checkpoint: str
    target: str
    ends: bool
    """Whether embedding, final norm and head are all that the probes need of the target."""
    device: str = "auto"
    dtype: str = "auto"
    overrides: tuple[tuple[str, Any], ...] = ()
    revision: str | None = None
    trust_remote_code: bool = False
    chat_template: str | None = None
    cache_dir: str | None = None
    gpus: float = field(default=0.0, compare=False)
    """Of each task."""


def check_installed() -> None:
    """Raises DriftscopeError where Ray is missing, before anything is loaded."""
    try:
        import ray  # noqa: F401
    except ImportError:
        raise DriftscopeError("--shards ray needs Ray, which is not installed: pip install 'driftscope[ray]'") from None


def job_of(request: ProbeRequest, pair: Pair) -> Job:
    """The job for a pair that is loaded here from a checkpoint and a target that workers find, too."""
    given, texts = sorted((request.overrides or {}).items()), request.texts
    switches = tuple((name, tuple(v) if isinstance(v, list) else v) for name, v in given)
    for name, value in (("checkpoint", pair.checkpoint.path), ("target", pair.target.name)):
        if name == "target" and not Path(value).exists() and "/" not in value:
            raise DriftscopeError(
                f"--shards ray: target {value} is neither a folder nor a Hub name; workers cannot load it"
            )
    asking = any(isinstance(item, ConditionProbe) for item in request.probes)
    return Job(
        checkpoint=_absolute(pair.checkpoint.path),
        target=_absolute(pair.target.name),
        ends=texts.capture is not None or not asking,
        overrides=switches,
        device=request.places.device,
        dtype=request.places.dtype,
        revision=request.places.revision,
        trust_remote_code=request.places.trust_remote_code,
        chat_template=None if texts.chat_template is None else pair.target.tokenizer.chat_template,
        cache_dir=None if texts.cache_dir is None else str(Path(texts.cache_dir).resolve()),
        gpus=1.0 if pair.drafter.device.type == "cuda" else 0.0,
    )


def _absolute(path: str) -> str:
    return str(Path(path).resolve()) if Path(path).exists() else path


def run_on_ray(
    run: Run, bench: Bench, sources: Sequence[Any], probes: Sequence[Probe], job: Job, progress: ProgressReport
) -> None:
    """Measure what the run lacks on the cluster that Ray is connected to, that RAY_ADDRESS or a running node names, or on
    one that is started here.

    Raises DriftscopeError in one line where a prompt fails or its worker is lost TRIES times; shards that came stay.
    """
    check_installed()
    import ray

    todo, done = lacking(run, bench, sources, probes)
    progress.stage("probing", done + sum(len(work.probes) for work in todo))
    progress.advance(done)
    if not todo:
        return
    started = not ray.is_initialized()
    if started:
        _connect()
    try:
        workers = max(1, int(ray.cluster_resources().get("GPU" if job.gpus else "CPU", 1)))
        progress.message(f"ray: {len(todo)} prompts on {workers} {'GPUs' if job.gpus else 'processors'}")
        for work, shards in _results(todo, job, bench.settings, bench.max_new_tokens, workers):
            for shard, tables in shards:
                run.write_shard(shard, work.source.prompt.id, tables)
                progress.advance(note=f"{work.source.prompt.id} {shard}")
    finally:
        if started:
            ray.shutdown()


def _connect() -> None:
    import ray

    try:
        ray.init(log_to_driver=False, logging_level="ERROR", include_dashboard=False)
    except (ConnectionError, ValueError, RuntimeError, OSError) as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        address = os.environ.get("RAY_ADDRESS")
        raise DriftscopeError(f"ray: no cluster{f' at RAY_ADDRESS {address}' if address else ''} ({first})") from error


def _results(
    todo: Sequence[Work], job: Job, settings: Settings, max_new_tokens: int, workers: int
) -> Iterator[tuple[Work, list[tuple[str, Tables]]]]:
    """What every prompt gives, in the order in which they come."""
    import ray
    from ray.exceptions import RayError, RayTaskError

    # Tasks are stateless: the pair stays with the process that loaded it, and Ray starts a task anew where it died.
    task = ray.remote(num_cpus=1, num_gpus=job.gpus or None, max_retries=TRIES - 1)(TASK)
    waiting = list(reversed(todo))
    running: dict[Any, Work] = {}
    while waiting or running:
        while waiting and len(running) < _AHEAD * workers:
            work = waiting.pop()
            running[task.remote(job, ray.put(work), settings, max_new_tokens)] = work
        (ready,), _ = ray.wait(list(running), num_returns=1)
        work = running.pop(ready)
        try:
            yield work, ray.get(ready)
        except RayTaskError as error:
            cause = error.cause
            if isinstance(cause, DriftscopeError):
                raise type(cause)(f"ray: prompt {work.source.prompt.id}: {cause}") from error
            raise
        except RayError as error:
            first = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise RunError(
                f"ray: prompt {work.source.prompt.id} was begun {TRIES} times and its worker lost each time ({first}); what"
                " was measured is kept: go on with --resume"
            ) from error


def measure_prompt(job: Job, work: Work, settings: Settings, max_new_tokens: int) -> list[tuple[str, Tables]]:
    """The missing shards of one prompt. Runs in a worker."""
    cache = CaptureCache(Path(job.cache_dir) if job.cache_dir is not None else None)
    return list(measured(Bench(_loaded(job), settings, max_new_tokens, cache), work))


TASK = measure_prompt
"""What a worker is sent."""


@functools.lru_cache(maxsize=1)
def _loaded(job: Job) -> Pair:
    """The pair, kept by a worker for the next prompt."""
    load: Any = load_target_ends if job.ends else load_target
    places = {"device": job.device, "dtype": as_dtype(job.dtype), "trust_remote_code": job.trust_remote_code}
    target = load(job.target, **places)
    if job.chat_template is not None:
        target.tokenizer.chat_template = job.chat_template
    return load_pair(job.checkpoint, target, overrides=dict(job.overrides), revision=job.revision)
