"""A probe of a real pair at the longest text that its target holds, the target's own work included.

    python benchmarks/longest.py CHECKPOINT --target TARGET [--max-new-tokens 64] [-o longest.json]

The prompt is the shipped ones, one after the other, as far as the target's context leaves room for a last one and its answer. CPU
seconds and peak memory above the loaded pair: first the capture, then prefix pass and chains of all anchors, observed.
"""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import Any

import torch
from measuring import apart, measured
from provenance import write_result
from rich.console import Console

from driftscope.captures.capture import Capture, capture
from driftscope.chain.drafter_inputs import needed_boundaries
from driftscope.chain.pair import load_pair
from driftscope.chain.prompt_chains import Settings, Subject
from driftscope.runs.rows import joint, match_matrix, to_numpy
from driftscope.target.prompts import TokenizedPrompt, load_prompts, tokenize_prompts

DEPTH = 8


def benchmark(checkpoint: str, target: str | None, new_tokens: int, threads: int) -> dict[str, Any]:
    """Cost of both halves, and figures that show that it ran."""
    torch.set_num_threads(threads)
    pair = load_pair(checkpoint, target, device="cpu")
    longest = pair.target.max_positions
    assert longest is not None, "the target's config names its longest text"
    kept, _ = tokenize_prompts(load_prompts(None), pair.target.tokenizer, max_tokens=longest, min_tokens=2)
    ids: list[int] = []
    while len(ids) < longest - new_tokens:
        ids += [token for prompt in kept for token in prompt.token_ids]
    # A whole question at the end: behind a text that is cut off, the target stops at once.
    last = max(kept, key=lambda prompt: len(prompt.token_ids) if prompt.category == "chat" else 0).token_ids
    prompt = dataclasses.replace(kept[0], id="longest", token_ids=(*ids[: longest - new_tokens - len(last)], *last))
    made: list[Capture] = []
    first = measured(lambda: made.extend(_captured(pair, prompt, new_tokens)))
    settings = Settings(depth=DEPTH, horizon=DEPTH)
    steps: list[Any] = []

    def run() -> None:
        steps[:] = Subject(pair, made[0], settings).chains("drafted")

    second = measured(run)
    accepted = joint(match_matrix(to_numpy(steps)))
    return {
        "tokens": made[0].length,
        "chains": len(steps[0]["drafted"]),
        "depth": DEPTH,
        "capture": dataclasses.asdict(first),
        "probe": dataclasses.asdict(second),
        "growth": float((steps[-1]["rms/carry"] / steps[0]["rms/carry"]).double().log().mean().exp()),
        "accepted": float(accepted.sum(1).mean()),
    }


def _captured(pair: Any, prompt: TokenizedPrompt, new_tokens: int) -> list[Capture]:
    boundaries = needed_boundaries(pair.config, pair.target.num_layers)
    return capture(pair.target, [prompt], max_new_tokens=new_tokens, boundaries=boundaries)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint")
    parser.add_argument("--target")
    parser.add_argument("--max-new-tokens", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("-o", "--out", type=Path, default=Path("build/benchmarks/longest.json"))
    given = parser.parse_args()
    found = apart(benchmark, given.checkpoint, given.target, given.max_new_tokens, given.threads)
    Console().print(
        f"{found['tokens']} tokens, {found['chains']} chains: capture {found['capture']['cpu']:.0f} CPU s,"
        f" {found['capture']['peak']:.0f} MiB; probe {found['probe']['cpu']:.1f} CPU s, {found['probe']['peak']:.0f} MiB"
    )
    write_result(given.out, {"checkpoint": given.checkpoint, **found}, threads=given.threads)


if __name__ == "__main__":
    main()
