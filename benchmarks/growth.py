"""How the cost of chains grows, and how close it comes to what the machine can do.

    python benchmarks/growth.py [--threads 1] [--device cuda] [--dtype bfloat16] [-o growth.json]

Drafters with random weights in the shape of the example pair's over made-up states: cost does not depend on the values. One
size is varied at a time, each point in a process of its own: text length T, anchors, depth, heads (with the width). CPU
seconds and peak memory above the loaded drafter, with the exponent of a power law fitted to the larger half of the points,
where the fixed part no longer counts. At every width also what observing all sites adds to the bare chains: the reductions
grow with the width, the chains with its square. Then the floating-point operations of the chains, counted from the shapes of
the operations that run (torch's FlopCounterMode), beside what one large matrix product does per second here.

On a CUDA device sizes are larger, all points run in one process, seconds are wall seconds, and memory is the device's. While
the work is small there, it costs what it takes to hand it out, whatever its size.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from made_up import Place, Size, subject
from measuring import MIB, Cost, caller, counted, device_argument, in_turn, machine, measured, on_cuda
from rich.console import Console
from rich.table import Table
from torch.utils.flop_counter import FlopCounterMode
from ways import bare_chain

from driftscope.chain.prompt_chains import Subject
from driftscope.drafter.linear import Linear

VARIED: dict[str, tuple[int, ...]] = {
    "text": (256, 512, 1024, 2048, 4096, 8192),
    "anchors": (16, 32, 64, 128, 256, 512),
    "depth": (2, 4, 8, 16, 32),
    "heads": (3, 6, 9, 18, 36),
}
ON_CUDA: dict[str, tuple[int, ...]] = {
    "text": (1024, 4096, 16384),
    "anchors": (64, 256, 960),
    "depth": (4, 8, 16),
    "heads": (9, 18, 36, 63),
}
"""The same on a device; 63 heads are a drafter of 4032 features, as large targets have."""
LIMIT = {"cpu": (Size(anchors=256), 2048), "cuda": (Size(text=2048, anchors=1024, heads=63), 8192)}
"""Chains that are set beside a product of square matrices, and the side of these."""


def point(size: Size, place: Place) -> Cost:
    """Prefix pass and observed chains of one text."""
    torch.set_num_threads(place.threads)
    prepared = subject(size, place)

    def run() -> None:
        Subject(prepared.pair, prepared.capture, prepared.settings).chains("drafted")

    # What libraries set up on their first call is no part of the cost; on a device they do so for every size.
    if on_cuda(place.device):
        run()
    else:
        subject(Size(text=128, anchors=4, depth=2, heads=size.heads), place).chains("drafted")
    return measured(run, 3, place.device)


def exponent(sizes: Sequence[int], values: Sequence[float]) -> float | None:
    """Slope of log value over log size, over the larger half; None where a value is too small to be a measurement."""
    half = len(sizes) // 2
    if len(sizes) - half < 2 or min(values[half:]) <= 0:
        return None
    return float(np.polyfit(np.log(sizes[half:]), np.log(values[half:]), 1)[0])


def recording(size: Size, place: Place, rounds: int = 5) -> float:
    """Time of the chains with every site observed over that of bare ones, prefix pass excluded."""
    torch.set_num_threads(place.threads)
    prepared = subject(size, place)
    ways = {"bare": lambda: bare_chain(prepared), "observed": lambda: prepared.chains("drafted")}
    seconds = in_turn(ways, rounds, place.device)
    return seconds["observed"] / seconds["bare"]


def limit(place: Place, size: Size, side: int) -> dict[str, float]:
    """Operations of bare chains per second, beside those of one large matrix product; on a CPU per CPU second."""
    torch.set_num_threads(place.threads)
    prepared = subject(size, place)
    # The prefix pass is made once, and is no part of what is timed below.
    prepared.passed  # noqa: B018
    # The counter knows torch's own products only.
    with (
        FlopCounterMode(display=False) as counter,
        warnings.catch_warnings(action="ignore"),
        torch.backends.mkldnn.flags(enabled=False),
    ):
        bare_chain(prepared)
    operations = counter.get_total_flops()
    kind = counted(place.device)
    chain = getattr(measured(lambda: bare_chain(prepared), 5, place.device), kind)
    drafter, config = prepared.pair.drafter, prepared.pair.config
    number = drafter.embed_tokens.weight.element_size()
    weights = sum(part.numel() for part in drafter.parameters()) - drafter.embed_tokens.weight.numel()
    cache = 2 * prepared.capture.length * config.num_kv_heads * config.head_dim
    large = Linear(side, side, bias=False).to(place.device, drafter.dtype)
    x = torch.randn(side, side).to(place.device, drafter.dtype)
    with torch.no_grad():
        large(x)
        # The faster of the two libraries that torch comes with.
        ways = (lambda: large(x), lambda: x @ large.weight)
        product = min(getattr(measured(way, 7, place.device), kind) for way in ways)
    return {
        "chain_gflop": operations / 1e9,
        f"chain_{kind}_seconds": chain,
        "chain_gflop_per_second": operations / 1e9 / chain,
        "product_gflop_per_second": 2 * side**3 / 1e9 / product,
        "share": operations / chain / (2 * side**3 / product),
        "weight_mib_per_step": weights * number / MIB,
        "prefix_mib_per_step": cache * number / MIB,
    }


def grown(name: str, sizes: Sequence[int], place: Place, say: Callable[[str], None]) -> dict[str, Any]:
    """Cost against one size, with the exponents."""
    costs = []
    for size in sizes:
        say(f"{name} = {size}")
        costs.append(caller(place.device)(point, dataclasses.replace(Size(), **{name: size}), place))
    kind = counted(place.device)
    seconds, peaks = [getattr(cost, kind) for cost in costs], [cost.peak for cost in costs]
    return {
        "sizes": list(sizes),
        kind: seconds,
        "peak_mib": peaks,
        f"{kind}_exponent": exponent(sizes, seconds),
        "peak_exponent": exponent(sizes, peaks),
    }


def recorded(heads: Sequence[int], place: Place, say: Callable[[str], None]) -> dict[str, float]:
    """`recording` at every width."""
    ratios = {}
    for count in heads:
        say(f"recording, heads = {count}")
        ratios[str(count)] = caller(place.device)(recording, Size(heads=count), place)
    return ratios


def limits(place: Place, say: Callable[[str], None]) -> dict[str, float]:
    """`limit` at the size for this kind of device."""
    say("limit")
    found: dict[str, float] = caller(place.device)(limit, place, *LIMIT[torch.device(place.device).type])
    return found


def benchmark(place: Place, varied: dict[str, tuple[int, ...]], say: Callable[[str], None]) -> dict[str, Any]:
    about = {"machine": machine(place.device), "dtype": place.dtype} if place != Place(place.threads) else {}
    return {
        "threads": place.threads,
        **about,
        "base": asdict(Size()),
        "grown": {name: grown(name, sizes, place, say) for name, sizes in varied.items()},
        "recording": recorded(varied["heads"], place, say),
        "limit": limits(place, say),
    }


def print_report(result: dict[str, Any], console: Console) -> None:
    for name, found in result["grown"].items():
        print_grown(name, found, console)
    print_recorded(result["recording"], console)
    print_limit(result["limit"], console)


def print_grown(name: str, found: dict[str, Any], console: Console) -> None:
    kind, word = ("cpu", "CPU") if "cpu" in found else ("wall", "wall")
    table = Table(title=f"against {name}")
    for column in (name, f"{word} s", "peak MiB"):
        table.add_column(column, justify="right")
    for size, seconds, peak in zip(found["sizes"], found[kind], found["peak_mib"], strict=True):
        table.add_row(str(size), f"{seconds:.3f}", f"{peak:.0f}")
    console.print(table)
    told = {part: found[f"{part}_exponent"] for part in (kind, "peak")}
    console.print(", ".join(f"{part} ~ {name}^{value:.2f}" for part, value in told.items() if value is not None))


def print_recorded(ratios: dict[str, float], console: Console) -> None:
    for heads, ratio in ratios.items():
        console.print(f"all sites observed, {heads} heads: {ratio:.2f}x the bare chains")


def print_limit(seen: dict[str, float], console: Console) -> None:
    second = "CPU second" if "chain_cpu_seconds" in seen else "second"
    console.print(
        f"chains: {seen['chain_gflop_per_second']:.0f} GFLOP a {second}, {seen['share']:.0%} of one large product's "
        f"{seen['product_gflop_per_second']:.0f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    device_argument(parser, dtype=True)
    parser.add_argument("-o", "--out", type=Path, default=Path("build/benchmarks/growth.json"))
    given = parser.parse_args()
    place = Place(given.threads, given.device, given.dtype)
    varied = ON_CUDA if on_cuda(given.device) else VARIED
    result = benchmark(place, varied, lambda text: print(text, file=sys.stderr))
    print_report(result, Console())
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
