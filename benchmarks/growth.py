"""How the cost of chains grows, and how close it comes to what the machine can do.

    python benchmarks/growth.py [--threads 1] [-o growth.json]

Drafters with random weights in the shape of the example pair's over made-up states: cost does not depend on the values. One
size is varied at a time, each point in a process of its own: text length T, anchors, depth, heads (with the width). CPU
seconds and peak memory above the loaded drafter, with the exponent of a power law fitted to the larger half of the points,
where the fixed part no longer counts. Then the floating-point operations of the chains, counted from the shapes of the
operations that run (torch's FlopCounterMode), beside what one large matrix product does per second here.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from chain import Cost, apart, bare_chain, measured
from rich.console import Console
from rich.table import Table
from torch.utils.flop_counter import FlopCounterMode

from driftscope.captures import Capture
from driftscope.checkpoints.config import DrafterConfig
from driftscope.checkpoints.sizes import expected_shapes
from driftscope.drafter import build_drafter
from driftscope.pair import Pair
from driftscope.subject import Settings, Subject

GIB = 1024.0
"""MiB."""


@dataclass(frozen=True)
class Size:
    """One point."""

    text: int = 1024
    anchors: int = 64
    depth: int = 8
    heads: int = 9


VARIED: dict[str, tuple[int, ...]] = {
    "text": (256, 512, 1024, 2048, 4096, 8192),
    "anchors": (16, 32, 64, 128, 256, 512),
    "depth": (2, 4, 8, 16, 32),
    "heads": (3, 6, 9, 18, 36),
}


def subject(size: Size) -> Subject:
    """A drafter of that many heads of 64 (a third of them for keys), and one text."""
    config, weights = made_up_drafter(size.heads)
    generator = torch.Generator().manual_seed(0)
    width = config.hidden_size
    vocabulary = torch.zeros(config.vocab_size, width)
    drafter = build_drafter(config, weights, target_embedding=vocabulary, target_head=vocabulary)
    rows = size.text
    record = Capture(
        prompt_id="made-up",
        category="",
        token_ids=torch.randint(0, config.vocab_size, (rows,), generator=generator),
        prompt_length=rows - size.anchors - size.depth - 1,
        final=torch.randn(rows, width, generator=generator),
        boundaries={b: torch.randn(rows, width, generator=generator) for b in config.aux_boundaries or ()},
        rms=torch.ones(4, rows),
        near_tie=torch.zeros(rows, dtype=torch.bool),
        loop=torch.zeros(rows, dtype=torch.bool),
        stopped=False,
    )
    pair = Pair(None, config, SimpleNamespace(num_layers=3), drafter)  # type: ignore[arg-type]
    return Subject(pair, record, Settings(depth=size.depth, horizon=size.depth))


def made_up_drafter(heads: int) -> tuple[DrafterConfig, dict[str, torch.Tensor]]:
    """An EAGLE 3.1 drafter with random weights."""
    config = DrafterConfig(
        layer_form="eagle3",
        hidden_size=64 * heads,
        target_hidden_size=64 * heads,
        intermediate_size=1536 * heads // 9,
        num_heads=heads,
        num_kv_heads=heads // 3,
        head_dim=64,
        vocab_size=8192,
        draft_vocab_size=4096,
        aux_boundaries=(1, 2, 3),
        fc_norm=True,
        carry="post",
    )
    generator = torch.Generator().manual_seed(0)
    weights = {
        name: torch.randn(shape, generator=generator) * (shape[-1] ** -0.5 if len(shape) > 1 else 0.1)
        + (len(shape) == 1)
        for name, shape in expected_shapes(config).items()
    }
    weights["d2t"] = torch.arange(config.draft_vocab_size)
    return config, weights


def point(size: Size, threads: int) -> Cost:
    """Prefix pass and observed chains of one text."""
    torch.set_num_threads(threads)
    prepared = subject(size)
    # What libraries set up on their first call is no part of the cost.
    subject(Size(text=128, anchors=4, depth=2, heads=size.heads)).chains("drafted")

    def run() -> None:
        Subject(prepared.pair, prepared.capture, prepared.settings).chains("drafted")

    return measured(run, 3)


def exponent(sizes: Sequence[int], values: Sequence[float]) -> float | None:
    """Slope of log value over log size, over the larger half; None where a value is too small to be a measurement."""
    half = len(sizes) // 2
    if min(values[half:]) <= 0:
        return None
    return float(np.polyfit(np.log(sizes[half:]), np.log(values[half:]), 1)[0])


def limit(threads: int) -> dict[str, float]:
    """Operations of bare chains per CPU second, beside one large matrix product's."""
    torch.set_num_threads(threads)
    prepared = subject(Size(anchors=256))
    with FlopCounterMode(display=False) as counter:
        bare_chain(prepared)
    operations = counter.get_total_flops()
    chain = measured(lambda: bare_chain(prepared), 5)
    config = prepared.pair.config
    weights = sum(part.numel() * part.element_size() for part in prepared.pair.drafter.parameters())
    weights -= prepared.pair.drafter.embed_tokens.weight.numel() * 4
    rows = prepared.capture.length
    cache = 2 * rows * config.num_kv_heads * config.head_dim * 4
    side = 2048
    a, b = torch.randn(side, side), torch.randn(side, side)
    product = measured(lambda: a @ b, 7)
    return {
        "chain_gflop": operations / 1e9,
        "chain_cpu_seconds": chain.cpu,
        "chain_gflop_per_second": operations / 1e9 / chain.cpu,
        "product_gflop_per_second": 2 * side**3 / 1e9 / product.cpu,
        "share": operations / chain.cpu / (2 * side**3 / product.cpu),
        "weight_mib_per_step": weights / 2**20,
        "prefix_mib_per_step": cache / 2**20,
    }


def benchmark(threads: int, varied: dict[str, tuple[int, ...]], say: Callable[[str], None]) -> dict[str, Any]:
    result: dict[str, Any] = {"threads": threads, "base": asdict(Size()), "grown": {}}
    for name, sizes in varied.items():
        costs = []
        for size in sizes:
            say(f"{name} = {size}")
            costs.append(apart(point, dataclasses.replace(Size(), **{name: size}), threads))
        result["grown"][name] = {
            "sizes": list(sizes),
            "cpu": [cost.cpu for cost in costs],
            "peak_mib": [cost.peak for cost in costs],
            "cpu_exponent": exponent(sizes, [cost.cpu for cost in costs]),
            "peak_exponent": exponent(sizes, [cost.peak for cost in costs]),
        }
    say("limit")
    result["limit"] = apart(limit, threads)
    return result


def print_report(result: dict[str, Any], console: Console) -> None:
    for name, grown in result["grown"].items():
        table = Table(title=f"against {name}")
        for column in (name, "CPU s", "peak MiB"):
            table.add_column(column, justify="right")
        for size, cpu, peak in zip(grown["sizes"], grown["cpu"], grown["peak_mib"], strict=True):
            table.add_row(str(size), f"{cpu:.3f}", f"{peak:.0f}")
        console.print(table)
        told = {kind: grown[f"{kind}_exponent"] for kind in ("cpu", "peak")}
        console.print(", ".join(f"{kind} ~ {name}^{value:.2f}" for kind, value in told.items() if value is not None))
    seen = result["limit"]
    console.print(
        f"chains: {seen['chain_gflop_per_second']:.0f} GFLOP a CPU second, {seen['share']:.0%} of one large product's "
        f"{seen['product_gflop_per_second']:.0f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("-o", "--out", type=Path, default=Path("build/benchmarks/growth.json"))
    given = parser.parse_args()
    result = benchmark(given.threads, VARIED, lambda text: print(text, file=sys.stderr))
    print_report(result, Console())
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
