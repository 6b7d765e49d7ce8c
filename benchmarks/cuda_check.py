"""Whether a CUDA machine measures what a CPU measures, on one pair.

    python benchmarks/cuda_check.py [CHECKPOINT] [--target TARGET] [--prompts 6] [--device cuda]

1. The recording forward and all rows of the chains in float32, on the device against the CPU, over the same texts.
2. No synchronisation with the host inside the chain and its reductions.
3. bfloat16 against float32 on the device: how growth, masses and acceptance move. Reported, not judged: bfloat16 rounds
   the carry at every step.

Exit code 0 when 1 and 2 hold, or when there is no CUDA device; 1 otherwise. `--device cpu` is a dry run of 1 and 3.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from driftscope.cache import CaptureCache
from driftscope.captures import Capture, capture
from driftscope.chain import Feed
from driftscope.errors import DriftscopeError
from driftscope.features import needed_boundaries
from driftscope.measure import BUCKETS
from driftscope.pair import Pair, load_pair
from driftscope.prompts import load_prompts, tokenize_prompts
from driftscope.recording import record
from driftscope.subject import Settings, Subject

Steps = list[dict[str, Tensor]]

CAPTURE_TOLERANCE = 1e-3
"""Of the recorded states: largest difference relative to the largest value of that boundary at that position."""
ROW_TOLERANCE = {"rms": 1e-3, "mass": 1e-4, "excess": 2e-4, "matched_growth": 1e-3, "cos": 1e-4, "prob": 1e-3}
"""By the start of a quantity's name; relative where values may exceed 1 (rms, matched_growth), else absolute."""
RELATIVE = ("rms", "matched_growth")
MAX_OTHER_TOKENS = 0.002
"""Share of drafted tokens that may differ: near ties, ranked otherwise by another order of summation."""


def difference(name: str, one: Tensor, other: Tensor) -> float:
    """The largest difference of a quantity, NaN at the same places counting as equal; infinite where only one is NaN."""
    a, b = one.double().cpu(), other.double().cpu()
    if bool((a.isnan() != b.isnan()).any()):
        return float("inf")
    gap = (a - b).abs()
    if name.startswith(RELATIVE):
        gap = gap / b.abs().clamp_min(1e-12)
    return float(gap.nan_to_num(0.0).max()) if gap.numel() else 0.0


def compare_steps(one: Steps, other: Steps) -> tuple[dict[str, float], float]:
    """The largest difference by group of ROW_TOLERANCE, and the share of drafted tokens that differ.

    For the text-fed chains, where a differing token does not change the steps after it.
    """
    largest = dict.fromkeys(ROW_TOLERANCE, 0.0)
    differing = total = 0
    for a, b in zip(one, other, strict=True):
        if a.keys() != b.keys():
            raise ValueError(f"only one side has {', '.join(sorted(a.keys() ^ b.keys()))}")
        for name in a:
            group = next((group for group in largest if name.startswith(group)), None)
            if group is not None:
                largest[group] = max(largest[group], difference(name, a[name], b[name]))
        differing += int((a["drafted"].cpu() != b["drafted"].cpu()).sum())
        total += a["drafted"].numel()
    return largest, differing / total


def figures(all_steps: Sequence[Steps]) -> dict[str, list[float]]:
    """Per step, over the anchors of all texts: growth, acceptance (joint) and the mean mass of every bucket."""
    out: dict[str, list[float]] = {"growth": [], "acceptance": [], **{f"mass {name}": [] for name in BUCKETS[:-1]}}
    accepted = [torch.ones(len(steps[0]["drafted"]), dtype=torch.bool) for steps in all_steps]
    for k in range(len(all_steps[0])):
        growth = torch.cat([(steps[k]["rms/carry"] / steps[0]["rms/carry"]).double().cpu() for steps in all_steps])
        out["growth"].append(float(growth.log().mean().exp()))
        for i, steps in enumerate(all_steps):
            accepted[i] &= (steps[k]["drafted"] == steps[k]["text"]).cpu()
        out["acceptance"].append(float(torch.cat(accepted).double().mean()))
        mass = torch.cat([steps[k]["mass"].double().mean((1, 2)).cpu() for steps in all_steps]).mean(0)
        for name, value in zip(BUCKETS, mass.tolist(), strict=True):
            if f"mass {name}" in out:
                out[f"mass {name}"].append(value)
    return out


@contextlib.contextmanager
def no_sync(chain: nn.Module) -> Iterator[list[int]]:
    """Whatever waits for a CUDA device while `chain` runs, reductions in hooks included, raises RuntimeError.

    Yields a list that holds one entry per guarded run.
    """
    runs: list[int] = []

    def enter(*_: Any) -> None:
        runs.append(len(runs))
        if torch.cuda.is_available():
            torch.cuda.set_sync_debug_mode("error")

    def leave(*_: Any) -> None:
        if torch.cuda.is_available():
            torch.cuda.set_sync_debug_mode("default")

    handles = [chain.register_forward_pre_hook(enter), chain.register_forward_hook(leave, always_call=True)]
    try:
        yield runs
    finally:
        leave()
        for handle in handles:
            handle.remove()


def recorded_again(pair: Pair, captures: Sequence[Capture]) -> tuple[list[Capture], float]:
    """The texts recorded by this pair's target, and the largest difference to the given states (CAPTURE_TOLERANCE)."""
    again, largest = [], 0.0
    for old in captures:
        made = record(pair.target, old.token_ids.tolist(), sorted(old.boundaries), label=f"prompt {old.prompt_id}")
        pairs = [(made.final, old.final), *((made.boundaries[b], old.boundaries[b]) for b in old.boundaries)]
        for new_state, old_state in pairs:
            gap = (new_state.float() - old_state.float()).abs().amax(-1)
            largest = max(largest, float((gap / old_state.float().abs().amax(-1).clamp_min(1e-12)).max()))
        again.append(
            Capture(**{**vars(old), "final": made.final, "boundaries": made.boundaries, "rms": made.rms.float()})
        )
    return again, largest


def chains(pair: Pair, captures: Sequence[Capture], settings: Settings, feed: Feed) -> list[Steps]:
    return [Subject(pair, record, settings).clean(feed) for record in captures]


def check(
    checkpoint: str, target: str, device: str, *, prompts: int, max_new_tokens: int, depth: int, cache: Path
) -> dict[str, Any]:
    """Run the three parts; `problems` in the result holds a line for each thing that is not as it should be."""
    settings = Settings(depth=depth, horizon=depth, sinks=(0,))
    on_cpu = load_pair(checkpoint, target, device="cpu", dtype="float32")
    kept, _ = tokenize_prompts(load_prompts(None), on_cpu.target.tokenizer, max_tokens=512, min_tokens=2)
    boundaries = needed_boundaries(on_cpu.config, on_cpu.target.num_layers)
    captures = capture(
        on_cpu.target,
        kept[:prompts],
        max_new_tokens=max_new_tokens,
        boundaries=boundaries,
        cache=CaptureCache(cache),
    )
    captures = [record for record in captures if record.new_tokens > depth]
    if not captures:
        raise DriftscopeError(f"no continuation is longer than the depth of {depth}; raise --max-new-tokens")
    problems: list[str] = []

    there = load_pair(checkpoint, target, device=device, dtype="float32")
    again, gap = recorded_again(there, captures)
    if gap > CAPTURE_TOLERANCE:
        problems.append(f"recorded states differ by {gap:.2g}, allowed {CAPTURE_TOLERANCE:g}")
    rows: dict[str, float] = dict.fromkeys(ROW_TOLERANCE, 0.0)
    others = []
    for ours, theirs in zip(chains(on_cpu, captures, settings, "text"), chains(there, captures, settings, "text"),
                            strict=True):  # fmt: skip
        largest, share = compare_steps(theirs, ours)
        rows = {name: max(rows[name], largest[name]) for name in rows}
        others.append(share)
    problems += [
        f"{name} differs by {rows[name]:.2g}, allowed {allowed:g}"
        for name, allowed in ROW_TOLERANCE.items()
        if rows[name] > allowed
    ]
    if max(others) > MAX_OTHER_TOKENS:
        problems.append(f"{max(others):.2%} of a text's drafted tokens differ, allowed {MAX_OTHER_TOKENS:.2%}")

    subject = Subject(there, captures[0], settings)
    subject.passed, subject.anchors  # noqa: B018 - prepared outside the guard
    synced = None
    with no_sync(there.chain) as runs:
        try:
            subject.chains("drafted")
        except RuntimeError as error:
            synced = str(error).splitlines()[0]
            problems.append(f"the step loop waits for the device: {synced}")
    if not runs:
        problems.append("the guard against synchronisation did not see the chain run")

    full = figures(chains(there, again, settings, "drafted"))
    del there, subject
    low = load_pair(checkpoint, target, device=device, dtype="bfloat16")
    low_captures, low_gap = recorded_again(low, captures)
    half = figures(chains(low, low_captures, settings, "drafted"))
    return {
        "device": torch.cuda.get_device_name(device) if torch.device(device).type == "cuda" else device,
        "prompts": len(captures),
        "float32": {"states": gap, "rows": rows, "other_tokens": max(others), "synchronised": synced},
        "bfloat16": {
            "states": low_gap,
            "float32": full,
            "bfloat16": half,
            "largest_difference": {
                name: max(abs(a - b) for a, b in zip(full[name], half[name], strict=True)) for name in full
            },
        },
        "problems": problems,
    }


def tell(result: dict[str, Any]) -> None:
    seen = result["float32"]
    print(f"{result['device']}, {result['prompts']} prompts, against the CPU in float32")
    print(f"  recorded states        {seen['states']:.1e}  (allowed {CAPTURE_TOLERANCE:g})")
    for name, value in seen["rows"].items():
        print(f"  {name:<22} {value:.1e}  (allowed {ROW_TOLERANCE[name]:g})")
    print(f"  other drafted tokens   {seen['other_tokens']:.2%}  (allowed {MAX_OTHER_TOKENS:.2%})")
    print(f"  waits in the step loop {seen['synchronised'] or 'none'}")
    low = result["bfloat16"]
    print(f"bfloat16 against float32 (recorded states differ by {low['states']:.1e})")
    for name, value in low["largest_difference"].items():
        print(f"  {name:<15} float32 {spread(low['float32'][name])}")
        print(f"  {'':<15} bfloat16 {spread(low['bfloat16'][name])}  largest difference {value:.4f}")
    print(*(f"problem: {problem}" for problem in result["problems"]), sep="\n", end="\n" if result["problems"] else "")


def spread(values: Sequence[float]) -> str:
    return " ".join(f"{value:.3f}" for value in values)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", nargs="?", default="examples/smollm2/checkpoints/eagle3.1")
    parser.add_argument("--target", default="build/target")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--prompts", type=int, default=6, metavar="N", help="the first N of the shipped prompts")
    parser.add_argument("--max-new-tokens", type=int, default=64)
    parser.add_argument("--depth", type=int, default=8)
    parser.add_argument("-o", "--out", type=Path, help="write the figures here as JSON")
    given = parser.parse_args(arguments)
    if torch.device(given.device).type == "cuda" and not torch.cuda.is_available():
        print("no CUDA device")
        return 0
    with tempfile.TemporaryDirectory() as cache:
        options = {name: getattr(given, name) for name in ("prompts", "max_new_tokens", "depth")}
        try:
            result = check(given.checkpoint, given.target, given.device, **options, cache=Path(cache))
        except DriftscopeError as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
    tell(result)
    if given.out:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(json.dumps(result, indent=1) + "\n")
    return 1 if result["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
