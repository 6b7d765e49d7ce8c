"""What a capture costs against transformers' own generate and one plain forward, over the same texts, in one run.

    python benchmarks/capture_cost.py CHECKPOINT --target TARGET [--prompts 8] [--max-new-tokens 128] [--threads 1]
        [--device cuda] [--dtype bfloat16]

Ours: batched greedy continuation, one recording forward a text (the states that the drafter reads, and the RMS of every
boundary at every position), written to the cache. Plain: the same batch through `generate`, then one forward a text of which
nothing is kept. Both start warm; the texts must be the same before a time is printed. Goal: 1.15 times the plain CPU time, on
a CUDA device of the plain wall time.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from measuring import Cost, caller, counted, device_argument, machine, measured
from provenance import write_result
from rich.console import Console
from ways import Job, captured, opened

GOAL = 1.15
WARM_TOKENS = 2


def ours(job: Job) -> tuple[Cost, list[list[int]]]:
    """Cost of the captures, and their texts."""
    pair, prompts = opened(job)
    captured(dataclasses.replace(job, max_new_tokens=WARM_TOKENS), pair, prompts, cached=False)
    made: list[Any] = []
    cost = measured(lambda: made.extend(captured(job, pair, prompts)), device=job.device)
    return cost, [record.token_ids.tolist() for record in made]


@torch.no_grad()
def plain(job: Job) -> tuple[Cost, list[list[int]]]:
    """Cost of generate() and a forward of each text, and the texts."""
    pair, prompts = opened(job)
    # In our order, so that a batch is summed alike.
    prompts = sorted(prompts, key=lambda prompt: -len(prompt.token_ids))
    target = pair.target
    eos = sorted(target.eos_ids)
    longest = max(len(prompt.token_ids) for prompt in prompts)
    ids = torch.full((len(prompts), longest), eos[0] if eos else 0)
    mask = torch.zeros_like(ids)
    for row, prompt in enumerate(prompts):
        ids[row, longest - len(prompt.token_ids) :] = torch.tensor(prompt.token_ids)
        mask[row, longest - len(prompt.token_ids) :] = 1
    ids, mask = ids.to(target.device), mask.to(target.device)
    texts: list[list[int]] = []

    def run(new_tokens: int) -> None:
        texts.clear()
        made = target.model.generate(
            input_ids=ids,
            attention_mask=mask,
            do_sample=False,
            max_new_tokens=new_tokens,
            eos_token_id=eos or None,
            pad_token_id=eos[0] if eos else 0,
        )
        for row, prompt in enumerate(prompts):
            said = made[row, longest:].tolist()
            end = next((place + 1 for place, token in enumerate(said) if token in target.eos_ids), len(said))
            texts.append([*prompt.token_ids, *said[:end]])
            target.model(input_ids=torch.tensor([texts[-1]], device=target.device), use_cache=False)

    run(WARM_TOKENS)
    cost = measured(lambda: run(job.max_new_tokens), device=job.device)
    return cost, list(texts)


def benchmark(job: Job) -> dict[str, Any]:
    """Both costs and their ratio."""
    call = caller(job.device)
    own, own_texts = call(ours, job)
    other, other_texts = call(plain, job)
    # Texts without room for an anchor are no captures of ours.
    kept = [text for text in other_texts if text in own_texts]
    if len(kept) != len(own_texts):
        raise AssertionError("the two ways wrote other texts")
    kind = counted(job.device)
    about = (
        {"machine": machine(job.device), "dtype": job.dtype} if (job.device, job.dtype) != ("cpu", "float32") else {}
    )
    return {
        "prompts": len(own_texts),
        "tokens": sum(map(len, own_texts)),
        "threads": job.threads,
        **about,
        "ours": dataclasses.asdict(own),
        "plain": dataclasses.asdict(other),
        f"{kind}_ratio": getattr(own, kind) / getattr(other, kind),
        "goal": GOAL,
    }


def print_report(result: dict[str, Any], console: Console) -> None:
    kind, word = ("cpu", "CPU") if "cpu_ratio" in result else ("wall", "wall")
    console.print(
        f"{result['prompts']} prompts, {result['tokens']} tokens: ours {result['ours'][kind]:.1f} {word} s, plain "
        f"{result['plain'][kind]:.1f}: {result[f'{kind}_ratio']:.2f}x (goal {GOAL}x)"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint")
    parser.add_argument("--target")
    parser.add_argument("--prompts", type=int, default=8, metavar="N", help="the first N prompts, one batch")
    parser.add_argument("--max-new-tokens", type=int, default=128)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    device_argument(parser, dtype=True)
    parser.add_argument("-o", "--out", type=Path, default=Path("build/benchmarks/capture_cost.json"))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as cache:
        job = Job(
            given.checkpoint,
            given.target,
            given.prompts,
            None,
            anchors=1,
            depth=1,
            max_new_tokens=given.max_new_tokens,
            threads=given.threads,
            cache=cache,
            device=given.device,
            dtype=given.dtype,
        )
        print("capturing, ours and plain", file=sys.stderr)
        result = benchmark(job)
    print_report(result, Console())
    write_result(given.out, result, threads=given.threads, device=given.device)


if __name__ == "__main__":
    main()
