"""What the passes of a round cost for a loaded pair, on the machine that this runs on."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from driftscope.chain.chain import ChainInputs, Text
from driftscope.chain.pair import Pair
from driftscope.chain.prefix import prefix_pass
from driftscope.drafter.onednn import packed_products
from driftscope.planning.clock import clock
from driftscope.planning.costs import BatchCost, CostModel
from driftscope.planning.kv import CachedTarget

REPEATS = 9


@dataclass(frozen=True)
class Sizes:
    """What is timed."""

    batches: tuple[int, ...] = (1, 4, 16)
    rows: tuple[int, ...] = tuple(range(1, 10))
    """Rows a request of the target's forward; 1 is plain decoding."""
    context: int = 160
    """Tokens before those rows."""
    depth: int = 8
    """Drafter steps that are timed together."""


@torch.no_grad()
def measure_costs(
    pair: Pair, sizes: Sizes, repeats: int = REPEATS, tell: Callable[[str], None] | None = None
) -> CostModel:
    """The median of `repeats` timings of every size, after one to warm up. The sizes of a batch take turns, so that a machine that
    slows down slows all of them.

    The target runs with a KV cache of `context` tokens and makes logits for every row, as verification needs them. Drafter steps
    run over as many chains as the batch has requests; those share one prefix here, whose keys an engine would read once a request.
    """
    device = pair.drafter.device
    now, read = clock(device)
    costs = []
    with packed_products(pair.target.model):
        cached = CachedTarget(pair.target)
        vocab = pair.target.vocab_size
        cached.forward(torch.randint(0, vocab, (1, sizes.context), generator=torch.Generator().manual_seed(0)))
        for batch in sizes.batches:
            if tell is not None:
                tell(f"timing batch {batch}")
            own = cached.copies(batch)
            verify = {rows: partial(_verify, own, batch, rows) for rows in sizes.rows}
            draft = drafter_run(pair, batch, sizes.context, sizes.depth)
            *target, drafted = _medians([*verify.values(), draft], repeats, now)
            steps = sizes.depth if pair.config.carries else 1
            costs.append(BatchCost(batch, drafted / steps, dict(zip(verify, target, strict=True))))
    told = f"measured on {device} in {str(pair.target.dtype).removeprefix('torch.')}, {sizes.context} tokens of context, in {read}"
    about = {"context": sizes.context, "repeats": repeats, "threads": torch.get_num_threads()}
    return CostModel("measured", told, tuple(costs), not pair.config.carries, about)


def drafter_run(pair: Pair, batch: int, context: int, depth: int) -> Callable[[], Any]:
    """A call that runs `depth` steps of `batch` chains behind `context` made-up rows."""
    drafter, config = pair.drafter, pair.config
    depth = min(depth, drafter.max_steps or depth)
    generator = torch.Generator().manual_seed(0)
    width = config.num_aux * config.target_hidden_size if config.feature_source == "aux" else config.target_hidden_size
    known = config.known_tokens or config.vocab_size
    ids = torch.randint(0, known, (context + depth + 1,), generator=generator).to(drafter.device)
    features = torch.randn(context + depth + 1, width, generator=generator).to(drafter.device, drafter.dtype)
    text = Text(ids, context, features)
    passed = prefix_pass(drafter, text, drafter.windows, sinks=(), horizon=1, rows=context)
    anchor = context - 1
    inputs = ChainInputs(
        anchors=torch.full((batch,), anchor, device=drafter.device),
        features=features[anchor].expand(batch, -1).contiguous(),
        tokens=ids[anchor + 1 : anchor + 1 + depth].expand(batch, -1),
        prefix=passed.prefix,
        windows=drafter.windows,
        depth=depth,
        feed="drafted",
    )
    chain = pair.chain

    def run() -> Any:
        return chain(inputs.part(slice(None)))

    return run


def _verify(cached: CachedTarget, batch: int, rows: int) -> None:
    ids = torch.arange(batch * rows).view(batch, rows) % cached.target.vocab_size
    cached.forward(ids).argmax(-1)
    cached.drop(rows)


def _medians(works: Sequence[Callable[[], Any]], repeats: int, now: Callable[[], float]) -> list[float]:
    """Of each of them, in turns; a first round does not count."""
    taken: list[list[float]] = [[] for _ in works]
    for _ in range(repeats + 1):
        for work, times in zip(works, taken, strict=True):
            begun = now()
            work()
            times.append(now() - begun)
    return [statistics.median(times[1:]) for times in taken]


def rows_needed(longest: int, nodes: Sequence[int] = ()) -> tuple[int, ...]:
    """Rows of the target that chains of up to `longest` tokens and trees of so many nodes need."""
    return tuple(sorted({*range(1, longest + 2), *(count + 1 for count in nodes)}))
