"""What probing costs against the loops that a script would write, on one pair, in one run.

    python benchmarks/chain.py CHECKPOINT --target TARGET [--prompts 4] [--anchors 64] [--depth 8] [--threads 1]

Three ways to the same numbers (carry RMS, bucket masses, drafted tokens), each in a process of its own:

  eager   a chain after the other, the whole sequence at every step, full attention matrices kept; no KV cache
  cached  a chain after the other, one row at every step over a KV cache
  ours    all anchors at once, every site observed

They must agree before a time is printed. Warm: the texts and the target's states are there, as they are for every drafter
after the first. Cold: getting them is included; for the loops with the target's generate() and one forward that returns
all states. Times are medians; peak memory is what comes on top of the loaded pair. Then, what recording costs: the chain
bare, with plain forward hooks that do the same reductions, and with nnsight.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import platform
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import naive
import torch
from naive import Numbers
from rich.console import Console
from rich.table import Table
from transformers.utils.logging import disable_progress_bar

from driftscope.cache import CaptureCache
from driftscope.captures import Capture, capture
from driftscope.chain import chain_inputs
from driftscope.drafter.site import site
from driftscope.errors import DriftscopeError
from driftscope.features import needed_boundaries
from driftscope.measure import BUCKETS, HEAVIEST, StepMeasure
from driftscope.pair import Pair, load_pair
from driftscope.prompts import TokenizedPrompt, load_prompts, tokenize_prompts
from driftscope.subject import Settings, Subject

SINKS = (0,)
RMS_TOLERANCE = 1e-4
"""Relative."""
MASS_TOLERANCE = 1e-4
"""Absolute."""
NEAR_TIE = 1e-3
"""Logits closer than this may be ranked otherwise by another order of summation."""
LOOPS = {"eager": naive.probe_eager, "cached": naive.probe_cached}
REPEATS = {"eager": 1, "cached": 3, "ours": 5}


@dataclass(frozen=True)
class Job:
    """What all processes work on."""

    checkpoint: str
    target: str | None
    prompts: int
    prompt_file: str | None
    anchors: int
    depth: int
    max_new_tokens: int
    threads: int
    cache: str


@dataclass(frozen=True)
class Cost:
    """Of one pass over all prompts."""

    wall: float
    """Seconds, the median of the repeats."""
    cpu: float
    """Seconds over all threads, the median of the repeats."""
    peak: float
    """MiB above what was there before."""


def measured(run: Callable[[], object], repeats: int = 1) -> Cost:
    """What `run` costs."""
    base = reset_peak()
    walls, cpus = [], []
    for _ in range(repeats):
        wall, cpu = time.perf_counter(), time.process_time()
        run()
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
    return Cost(statistics.median(walls), statistics.median(cpus), max(0.0, peak() - base))


def reset_peak() -> float:
    """Set the peak back to what is resident now where the system allows it (Linux); the peak then, in MiB."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return peak()


def peak() -> float:
    """Peak resident memory of this process in MiB."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024
    except (OSError, StopIteration):
        unit = 1 << 20 if sys.platform == "darwin" else 1 << 10
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def opened(job: Job) -> tuple[Pair, list[TokenizedPrompt]]:
    torch.set_num_threads(job.threads)
    disable_progress_bar()
    pair = load_pair(job.checkpoint, job.target, device="cpu", dtype="float32")
    file = Path(job.prompt_file) if job.prompt_file else None
    room = (pair.target.max_positions or 1 << 30) - job.max_new_tokens
    kept, _ = tokenize_prompts(load_prompts(file), pair.target.tokenizer, max_tokens=room, min_tokens=2)
    return pair, kept[: job.prompts]


def captured(job: Job, pair: Pair, prompts: Sequence[TokenizedPrompt], *, cached: bool = True) -> list[Capture]:
    """Captures with at least one anchor."""
    found = capture(
        pair.target,
        prompts,
        max_new_tokens=job.max_new_tokens,
        boundaries=needed_boundaries(pair.config, pair.target.num_layers),
        cache=CaptureCache(Path(job.cache)) if cached else None,
    )
    return [record for record in found if record.new_tokens > job.depth]


def subjects(job: Job, pair: Pair, captures: Sequence[Capture]) -> list[Subject]:
    """Fresh ones, which have computed nothing yet."""
    settings = Settings(depth=job.depth, horizon=job.depth, sinks=SINKS, anchors=job.anchors)
    return [Subject(pair, record, settings) for record in captures]


def our_numbers(subject: Subject) -> Numbers:
    """Prefix pass, baseline and chains with every site observed."""
    steps = subject.chains("drafted")
    named = [BUCKETS.index(name) for name in naive.BUCKETS]
    return Numbers(
        carry_rms=torch.stack([step["rms/carry"] for step in steps], 1),
        mass=torch.stack([step["mass"][:, 0][..., named] for step in steps], 1),
        drafted=torch.stack([step["drafted"] for step in steps], 1),
    )


def plain_numbers(loop: naive.Probe, subject: Subject, weights: naive.Weights) -> Numbers:
    """The same with a loop over the anchors."""
    text, drafter = subject.text, subject.pair.drafter
    return loop(
        subject.pair.config,
        weights,
        drafter.embed_tokens.weight,
        text.token_ids,
        text.prompt_length,
        text.features,
        subject.anchors.tolist(),
        subject.settings.depth,
        subject.settings.sinks,
    )


def plain_weights(pair: Pair) -> naive.Weights:
    """The drafter's weights under their canonical names."""
    weights = dict(pair.drafter.state_dict())
    return weights | {name: pair.checkpoint.weights[name] for name in ("d2t",) if name in pair.checkpoint.weights}


def capturing(job: Job) -> dict[str, Any]:
    """Cost of getting texts and states, ours and a script's; fills the cache for the other processes."""
    pair, prompts = opened(job)
    captures = captured(job, pair, prompts)
    if not captures:
        raise DriftscopeError(f"no continuation is longer than the depth of {job.depth}; raise --max-new-tokens")
    texts: list[torch.Tensor] = []

    def plain() -> None:
        boundaries = pair.config.aux_boundaries or ()
        for prompt in prompts:
            ids, _ = naive.plain_capture(
                pair.target.model, prompt.token_ids, job.max_new_tokens, boundaries, pair.target.eos_ids
            )
            texts.append(ids)

    script = measured(plain)
    ours = measured(lambda: captured(job, pair, prompts, cached=False))
    by_id = {prompt.id: ids for prompt, ids in zip(prompts, texts, strict=True)}
    same = sum(torch.equal(record.token_ids, by_id[record.prompt_id]) for record in captures)
    lengths = [record.length for record in captures]
    return {
        "script": script,
        "ours": ours,
        "same_texts": same,
        "prompts": len(captures),
        "anchors": sum(len(subject.anchors) for subject in subjects(job, pair, captures)),
        "text_length": statistics.mean(lengths),
    }


def running(job: Job, way: str) -> tuple[Cost, list[Numbers]]:
    """Cost and numbers of one of the three ways."""
    pair, prompts = opened(job)
    captures = captured(job, pair, prompts)
    weights = plain_weights(pair)
    made: list[Numbers] = []

    def once(job: Job) -> None:
        made.clear()
        for subject in subjects(job, pair, captures):
            loop = LOOPS.get(way)
            made.append(our_numbers(subject) if loop is None else plain_numbers(loop, subject, weights))

    # What libraries set up on their first calls is no part of the cost.
    once(replace(job, anchors=2))
    cost = measured(lambda: once(job), REPEATS[way])
    return cost, list(made)


def recording(job: Job, rounds: int = 7) -> dict[str, float]:
    """Seconds of the chains of all prompts, prefix pass excluded: `bare`, with plain `hooks`, with `nnsight`."""
    pair, prompts = opened(job)
    prepared = subjects(job, pair, captured(job, pair, prompts))
    ways: dict[str, Callable[[Subject], object]] = {
        "bare": bare_chain,
        "hooks": hooked_chain,
        "nnsight": lambda subject: subject.chains("drafted"),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for round_ in range(rounds + 1):
        for name, way in ways.items():
            begun = time.perf_counter()
            for subject in prepared:
                way(subject)
            # The first round also makes the prefixes.
            if round_ > 0:
                seconds[name].append(time.perf_counter() - begun)
    return {name: statistics.median(times) for name, times in seconds.items()}


@torch.no_grad()
def bare_chain(subject: Subject) -> torch.Tensor:
    """The chains with nothing read but the drafted tokens."""
    inputs = chain_inputs(
        subject.text,
        subject.passed.prefix,
        subject.windows,
        anchors=subject.anchors,
        depth=subject.settings.depth,
        feed="drafted",
    )
    drafted: torch.Tensor = subject.pair.chain(inputs)
    return drafted


def hooked_chain(subject: Subject) -> list[dict[str, torch.Tensor]]:
    """The chains, observed with plain forward hooks that reduce as observe() does."""
    drafter = subject.pair.drafter
    measure = StepMeasure(
        drafter, subject.text, subject.passed.baseline, subject.settings.sinks, subject.anchors, HEAVIEST
    )
    values: dict[str, torch.Tensor] = {}
    steps: list[dict[str, torch.Tensor]] = []

    def keeper(name: str) -> Callable[[Any, Any, torch.Tensor], None]:
        def keep(module: Any, args: Any, output: torch.Tensor) -> None:
            values[name] = output
            if name == drafter.step_sites[-1]:
                steps.append(measure(len(steps) + 1, slice(0, len(subject.anchors)), dict(values)))
                values.clear()

        return keep

    names = (*drafter.first_sites, *drafter.step_sites)
    handles = [site(drafter, name).register_forward_hook(keeper(name)) for name in names]
    try:
        bare_chain(subject)
    finally:
        for handle in handles:
            handle.remove()
    return steps


def agreement(ours: Sequence[Numbers], plain: Sequence[Numbers]) -> dict[str, float]:
    """The largest differences, over all steps up to the first near tie of a chain. AssertionError where they are too large."""
    rms = mass = 0.0
    ties = 0
    for mine, theirs in zip(ours, plain, strict=True):
        assert mine.drafted.shape == theirs.drafted.shape, "the ways ran other anchors"
        assert theirs.gap is not None
        differs = (mine.drafted != theirs.drafted).cummax(1).values
        # A chain leaves the comparison only where its first differing token was a near tie; that step still counts.
        first = differs & ~torch.nn.functional.pad(differs, (1, 0))[:, :-1]
        assert bool((theirs.gap[first] < NEAR_TIE).all()), "the ways draft other tokens"
        ties += int(first.sum())
        kept = ~differs | first
        rms = max(rms, float((mine.carry_rms / theirs.carry_rms - 1).abs()[kept].max()))
        mass = max(mass, float((mine.mass - theirs.mass).abs()[kept].max()))
    assert rms <= RMS_TOLERANCE, f"carry RMS differs by {rms:.2g} (relative)"
    assert mass <= MASS_TOLERANCE, f"masses differ by {mass:.2g}"
    return {"carry_rms_relative": rms, "mass_absolute": mass, "near_ties": ties}


def apart(work: Callable[..., Any], *arguments: Any) -> Any:
    """The result of `work` from a fresh process, so that its peak memory is its own."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(work, *arguments).result()


def benchmark(job: Job, say: Callable[[str], None]) -> dict[str, Any]:
    """Everything, as plain numbers."""
    say("capturing")
    capture_cost = apart(capturing, job)
    costs: dict[str, Cost] = {}
    made: dict[str, list[Numbers]] = {}
    for way in REPEATS:
        say(f"running {way}")
        costs[way], made[way] = apart(running, job, way)
    agreed = {way: agreement(made["ours"], made[way]) for way in LOOPS}
    say("recording")
    seconds = apart(recording, job)
    prepare = {way: capture_cost["ours" if way == "ours" else "script"] for way in costs}
    return {
        "checkpoint": job.checkpoint,
        "settings": {name: getattr(job, name) for name in ("anchors", "depth", "max_new_tokens", "threads")},
        "prompts": capture_cost["prompts"],
        "chains": capture_cost["anchors"],
        "mean_text_length": capture_cost["text_length"],
        "same_texts": capture_cost["same_texts"],
        "machine": {"cores": os.cpu_count(), "cpu": cpu_name(), "torch": torch.__version__},
        "agreement": agreed,
        "warm": {way: asdict(cost) for way, cost in costs.items()},
        "capture": {"script": asdict(capture_cost["script"]), "ours": asdict(capture_cost["ours"])},
        "cold": {
            way: {
                "wall": cost.wall + prepare[way].wall,
                "cpu": cost.cpu + prepare[way].cpu,
                "peak": max(cost.peak, prepare[way].peak),
            }
            for way, cost in costs.items()
        },
        "recording": {
            **seconds,
            "hooks_ratio": seconds["hooks"] / seconds["bare"],
            "nnsight_ratio": seconds["nnsight"] / seconds["bare"],
            "nnsight_share": (seconds["nnsight"] - seconds["hooks"]) / seconds["nnsight"],
        },
    }


def cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def print_report(result: dict[str, Any], console: Console) -> None:
    settings = result["settings"]
    console.print(
        f"{result['prompts']} prompts, {result['chains']} chains of {settings['depth']} steps, "
        f"{result['mean_text_length']:.0f} tokens a text, {settings['threads']} threads"
    )
    for way, seen in result["agreement"].items():
        console.print(
            f"ours = {way}: carry RMS within {seen['carry_rms_relative']:.1e}, masses within {seen['mass_absolute']:.1e}, "
            f"drafted tokens equal ({seen['near_ties']} near ties)"
        )
    for state in ("warm", "cold"):
        table = Table(title=f"{state} ({'capture cached' if state == 'warm' else 'capture included'})")
        for name in ("way", "wall s", "CPU s", "peak MiB", "wall: times ours", "CPU: times ours"):
            table.add_column(name, justify="left" if name == "way" else "right")
        ours = result[state]["ours"]
        for way, cost in result[state].items():
            ratios = (f"{cost[name] / ours[name]:.1f}" if ours[name] else "" for name in ("wall", "cpu"))
            table.add_row(way, f"{cost['wall']:.2f}", f"{cost['cpu']:.2f}", f"{cost['peak']:.0f}", *ratios)
        console.print(table)
    seen = result["recording"]
    console.print(
        f"recording: bare chain {seen['bare']:.2f} s, plain hooks {seen['hooks_ratio']:.2f}x, "
        f"nnsight {seen['nnsight_ratio']:.2f}x ({seen['nnsight_share']:.0%} of it is nnsight's own)"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint")
    parser.add_argument("--target", help="folder or name; default: what the checkpoint records")
    parser.add_argument("--prompts", type=int, default=4, metavar="N", help="the first N prompts")
    parser.add_argument("--prompt-file", help="default: the prompts that are shipped")
    parser.add_argument("--anchors", type=int, default=64, metavar="N", help="at most N anchors of each prompt")
    parser.add_argument("--depth", type=int, default=8)
    parser.add_argument("--max-new-tokens", type=int, default=128)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("-o", "--out", type=Path, default=Path("build/benchmarks/chain.json"))
    given = parser.parse_args(arguments)
    if min(given.prompts, given.anchors, given.depth, given.threads, given.max_new_tokens) < 1:
        parser.error("every count must be at least 1")
    console = Console()
    with tempfile.TemporaryDirectory() as cache:
        options = {name: value for name, value in vars(given).items() if name != "out"}
        job = Job(**options, cache=cache)
        try:
            refuse_unknown(job)
            result = benchmark(job, lambda text: print(text, file=sys.stderr))
        except DriftscopeError as error:
            sys.exit(f"error: {error}")
    print_report(result, console)
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(result, indent=1) + "\n")
    console.print(f"written to {given.out}")


def refuse_unknown(job: Job) -> None:
    """DriftscopeError before the costly part, where the plain loops cannot run this drafter."""
    from driftscope.checkpoints import open_checkpoint

    config = open_checkpoint(job.checkpoint).config
    unknown = naive.unknown_switches(config)
    if unknown:
        raise DriftscopeError(f"{job.checkpoint}: the plain loops of this benchmark do not know {', '.join(unknown)}")


if __name__ == "__main__":
    main()
