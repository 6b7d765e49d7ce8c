"""What bfloat16 changes in the figures of a pair: the texts, near ties, growth, acceptance and served length.

    python benchmarks/half_precision.py CHECKPOINT... --target TARGET [--prompts 12]

Three measurements of each drafter: all in float32; all in bfloat16, the target's own texts included; and bfloat16 over the texts
that the target wrote in float32, so that only the numbers differ and not what is read.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from agreeing import chains, figures, recorded_again
from measuring import apart
from provenance import write_result
from rich.console import Console
from transformers.utils.logging import disable_progress_bar

from driftscope.captures.capture import Capture, capture
from driftscope.chain.drafter_inputs import needed_boundaries
from driftscope.chain.pair import Pair, load_pair
from driftscope.chain.prompt_chains import Settings
from driftscope.runs.rows import joint, match_matrix, to_numpy
from driftscope.stats.acceptance import served_walk
from driftscope.target.model import load_target
from driftscope.target.prompts import load_prompts, tokenize_prompts

SETTINGS = Settings(depth=8, horizon=8)
NEW_TOKENS = 128


def texts(pair: Pair, prompts: int) -> list[Capture]:
    kept, _ = tokenize_prompts(load_prompts(None), pair.target.tokenizer, max_tokens=1024, min_tokens=2)
    boundaries = needed_boundaries(pair.config, pair.target.num_layers)
    return capture(pair.target, kept[:prompts], max_new_tokens=NEW_TOKENS, boundaries=boundaries)


def seen(pair: Pair, captures: Sequence[Capture]) -> dict[str, Any]:
    """Figures over all texts: growth at the last step, acceptance, served length, share of near ties."""
    steps = chains(pair, captures, SETTINGS, "drafted")
    walks = [served_walk(joint(match_matrix(to_numpy(part))).sum(1), SETTINGS.depth) for part in steps]
    told = figures(steps)
    new = sum(record.new_tokens for record in captures)
    return {
        "growth": told["growth"][-1],
        "accepted": sum(told["acceptance"]),
        "served": sum(walk.total for walk in walks) / sum(walk.rounds for walk in walks),
        "self_generated": told["mass drafted"][-1] + told["mass current"][-1],
        "near_ties": sum(int(record.near_tie.sum()) for record in captures) / new,
    }


@torch.no_grad()
def benchmark(checkpoints: Sequence[str], target: str, prompts: int, threads: int) -> dict[str, Any]:
    """By checkpoint; the texts are written once a dtype for all that read the same boundaries."""
    torch.set_num_threads(threads)
    disable_progress_bar()
    targets = {name: load_target(target, device="cpu", dtype=getattr(torch, name)) for name in ("float32", "bfloat16")}
    found: dict[str, Any] = {}
    written: dict[tuple[str, tuple[int, ...]], list[Capture]] = {}
    for checkpoint in checkpoints:
        pairs = {name: load_pair(checkpoint, whole) for name, whole in targets.items()}
        own = {}
        for name, pair in pairs.items():
            key = (name, tuple(needed_boundaries(pair.config, pair.target.num_layers)))
            own[name] = written[key] = written.get(key) or texts(pair, prompts)
        same = [torch.equal(a.token_ids, b.token_ids) for a, b in zip(*own.values(), strict=True)]
        shared = [
            next((i for i, (x, y) in enumerate(zip(a.token_ids.tolist(), b.token_ids.tolist(), strict=False)) if x != y),
                 min(a.length, b.length)) - a.prompt_length
            for a, b in zip(*own.values(), strict=True)
        ]  # fmt: skip
        again, largest = recorded_again(pairs["bfloat16"], own["float32"])
        again = [_ties(pairs["bfloat16"], record) for record in again]
        found[Path(checkpoint).name] = {
            "prompts": len(same),
            "same_texts": sum(same),
            "tokens_before_they_part": sum(shared) / len(shared),
            "states": largest,
            "float32": seen(pairs["float32"], own["float32"]),
            "bfloat16": seen(pairs["bfloat16"], own["bfloat16"]),
            "bfloat16_same_texts": seen(pairs["bfloat16"], again),
        }
    return found


def _ties(pair: Pair, record: Capture) -> Capture:
    """Where the argmax of the states as they are now differs from the text."""
    start = record.prompt_length - 1
    best = pair.target.head(record.final[start:-1]).argmax(-1).cpu()
    tie = torch.zeros_like(record.near_tie)
    tie[start:-1] = best != record.token_ids[start + 1 :]
    return replace(record, near_tie=tie)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoints", nargs="+")
    parser.add_argument("--target", required=True)
    parser.add_argument("--prompts", type=int, default=12, metavar="N")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("-o", "--out", type=Path, default=Path("build/benchmarks/half_precision.json"))
    given = parser.parse_args()
    found = apart(benchmark, given.checkpoints, given.target, given.prompts, given.threads)
    for name, told in found.items():
        Console().print(name, told)
    settings = {"prompts": given.prompts, "max_new_tokens": NEW_TOKENS, "depth": SETTINGS.depth}
    write_result(given.out, {"settings": settings, "drafters": found}, threads=given.threads)


if __name__ == "__main__":
    main()
