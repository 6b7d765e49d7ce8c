"""What probing costs against the loops that a script would write, on one pair, in one run.

    python benchmarks/chain.py CHECKPOINT --target TARGET [--prompts 16] [--anchors 64] [--depth 8] [--threads 1]
        [--device cuda]

Three ways to the same numbers (carry RMS, bucket masses, drafted tokens), on a CPU each in a process of its own:

  eager   a chain after the other, the whole sequence at every step, full attention matrices kept; no KV cache
  cached  a chain after the other, one row at every step over a KV cache
  ours    all anchors at once, every site observed

They must agree before a time is printed, so that all are in float32. Warm: the texts and the target's states are there, as
they are for every drafter after the first. Cold: getting them is included; for the loops with the target's generate() and
one forward that returns all states. Times are medians; peak memory is what comes on top of the loaded pair. Then, what
recording costs: the chain bare, with plain forward hooks that do the same reductions, and with nnsight.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import naive
import torch
from measuring import Cost, caller, device_argument, in_turn, machine, measured
from naive import Numbers
from rich.console import Console
from rich.table import Table
from ways import (
    LOOPS,
    Job,
    agreement,
    bare_chain,
    captured,
    hooked_chain,
    opened,
    our_numbers,
    plain_numbers,
    plain_weights,
    refuse_unknown,
    subjects,
)

from driftscope.chain.prompt_chains import Subject
from driftscope.errors import DriftscopeError

REPEATS = {"eager": 1, "cached": 3, "ours": 5}


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
            texts.append(ids.cpu())

    script = measured(plain, device=job.device)
    ours = measured(lambda: captured(job, pair, prompts, cached=False), device=job.device)
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
    cost = measured(lambda: once(job), REPEATS[way], job.device)
    return cost, [numbers.on_cpu() for numbers in made]


def recording(job: Job, rounds: int = 7) -> dict[str, float]:
    """Seconds of the chains of all prompts, prefix pass excluded: `bare`, with plain `hooks`, with `nnsight`."""
    pair, prompts = opened(job)
    prepared = subjects(job, pair, captured(job, pair, prompts))
    ways: dict[str, Callable[[Subject], object]] = {
        "bare": bare_chain,
        "hooks": hooked_chain,
        "nnsight": lambda subject: subject.chains("drafted"),
    }

    def over_all(way: Callable[[Subject], object]) -> Callable[[], None]:
        def run() -> None:
            for subject in prepared:
                way(subject)

        return run

    return in_turn({name: over_all(way) for name, way in ways.items()}, rounds, job.device)


def benchmark(job: Job, say: Callable[[str], None]) -> dict[str, Any]:
    """Everything, as plain numbers."""
    call = caller(job.device)
    say("capturing")
    capture_cost = call(capturing, job)
    costs: dict[str, Cost] = {}
    made: dict[str, list[Numbers]] = {}
    for way in REPEATS:
        say(f"running {way}")
        costs[way], made[way] = call(running, job, way)
    agreed = {way: agreement(made["ours"], made[way]) for way in LOOPS}
    say("recording")
    seconds = call(recording, job)
    prepare = {way: capture_cost["ours" if way == "ours" else "script"] for way in costs}
    return {
        "checkpoint": job.checkpoint,
        "settings": {name: getattr(job, name) for name in ("anchors", "depth", "max_new_tokens", "threads")},
        "prompts": capture_cost["prompts"],
        "chains": capture_cost["anchors"],
        "mean_text_length": capture_cost["text_length"],
        "same_texts": capture_cost["same_texts"],
        "machine": machine(job.device),
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


def print_report(result: dict[str, Any], console: Console) -> None:
    settings = result["settings"]
    device = result["machine"].get("device")
    # While a device works, the CPU seconds are those of waiting.
    kinds = {"wall": "wall"} if device else {"wall": "wall", "cpu": "CPU"}
    console.print(
        f"{result['prompts']} prompts, {result['chains']} chains of {settings['depth']} steps, "
        f"{result['mean_text_length']:.0f} tokens a text, {device or str(settings['threads']) + ' threads'}"
    )
    for way, seen in result["agreement"].items():
        console.print(
            f"ours = {way}: carry RMS within {seen['carry_rms_relative']:.1e}, masses within {seen['mass_absolute']:.1e}, "
            f"drafted tokens equal ({seen['near_ties']} near ties)"
        )
    for state in ("warm", "cold"):
        table = Table(title=f"{state} ({'capture cached' if state == 'warm' else 'capture included'})")
        for name in ("way", *(f"{kind} s" for kind in kinds.values()), "peak MiB",
                     *(f"{kind}: times ours" for kind in kinds.values())):  # fmt: skip
            table.add_column(name, justify="left" if name == "way" else "right")
        ours = result[state]["ours"]
        for way, cost in result[state].items():
            ratios = (f"{cost[name] / ours[name]:.1f}" if ours[name] else "" for name in kinds)
            table.add_row(way, *(f"{cost[name]:.2f}" for name in kinds), f"{cost['peak']:.0f}", *ratios)
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
    parser.add_argument("--prompts", type=int, default=16, metavar="N", help="the first N prompts")
    parser.add_argument("--prompt-file", help="default: the prompts that are shipped")
    parser.add_argument("--anchors", type=int, default=64, metavar="N", help="at most N anchors of each prompt")
    parser.add_argument("--depth", type=int, default=8)
    parser.add_argument("--max-new-tokens", type=int, default=128)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    device_argument(parser)
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


if __name__ == "__main__":
    main()
