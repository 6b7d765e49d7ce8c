"""The measured speed-up of the real loop beside the predicted one, on the same texts and with costs of the same minutes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from driftscope import stats
from driftscope.chain.pair import Pair
from driftscope.drafter.onednn import packed_products
from driftscope.errors import RunError
from driftscope.planning.costs import CostModel
from driftscope.planning.rounds import Drafts
from driftscope.planning.serve import Loop, Served

if TYPE_CHECKING:
    from driftscope.runs.folder import RunFolder


@dataclass(frozen=True)
class ServedText:
    """A text of the run to decode again."""

    prompt: str
    tokens: list[int]
    """Of the prompt."""
    count: int
    """New tokens, as many as the run's walk covers."""


def run_texts(run: RunFolder, drafts: Drafts, count: int) -> list[ServedText]:
    """The first `count` prompts of the run, from its table of tokens. RunError where the run does not hold them."""
    rows = run.table("tokens", "clean", columns=("prompt", "position", "id"))
    lengths = {prompt.id: prompt.prompt_length for prompt in run.info.prompts}
    found = []
    for number, part in enumerate(drafts.by_prompt()):
        name = drafts.prompts[number]
        own = rows[(rows["prompt"].astype(str) == name) & rows["position"].notna()].sort_values("position")
        ids = [int(token) for token in own["id"]]
        if name not in lengths or len(ids) <= lengths[name]:
            raise RunError(
                f"run {run.folder} does not hold the text of prompt {name}: probe again to serve it (--serve)"
            )
        # The walk starts with the first token behind the prompt and ends where its last anchor does.
        found.append(ServedText(name, ids[: lengths[name]], int(part.stop - part.start)))
    return found[:count]


def proof(
    pair: Pair,
    texts: Sequence[ServedText],
    drafts: Drafts,
    costs: CostModel,
    *,
    tell: Callable[[str], None] | None = None,
    resamples: int = stats.RESAMPLES,
) -> list[dict[str, Any]]:
    """For K = 1 .. depth, over `texts`: `measured` and `predicted` speed-up, the accepted tokens a round of the loop (`accepted`)
    and of the run's walk (`served`), and how many texts came out `identical` to plain decoding: near ties of the target can differ.

    The loop runs at batch 1. Plain decoding and every K take turns on each text, so that a machine that slows down slows all.
    """
    cost = next((part for part in costs.batches if part.batch == 1), None)
    loop = Loop(pair)
    plain: list[Served] = []
    drafted: list[list[Served]] = [[] for _ in range(drafts.depth)]
    with packed_products(pair.target.model), loop.reading():
        loop.speculative(texts[0].tokens, 4, drafts.depth)
        for text in texts:
            if tell is not None:
                tell(f"serving {text.prompt}")
            plain.append(loop.plain(text.tokens, text.count))
            for place in range(drafts.depth):
                drafted[place].append(loop.speculative(text.tokens, text.count, place + 1))
    chosen = [drafts.prompts.index(text.prompt) for text in texts]
    entries = []
    for place, served in enumerate(drafted):
        total, rounds = (part[chosen] for part in drafts.served(place + 1))
        length = float(total.sum() / rounds.sum())
        entry: dict[str, Any] = {"k": place + 1, "measured": _speed_up(plain, served), "served": length}
        entry["accepted"] = sum(one.timed for one in served) / sum(one.rounds for one in served) - 1
        if cost is not None:
            entry["predicted"] = (length + 1) * cost.plain / costs.round(cost, place + 1)
        same = [one.tokens[: len(base.tokens)] == base.tokens for one, base in zip(served, plain, strict=True)]
        entry |= {"identical": int(np.sum(same)), "texts": len(texts)}
        entries.append(entry)
    return entries


def _speed_up(plain: Sequence[Served], served: Sequence[Served]) -> float:
    """Seconds a token without the drafter over those with it."""
    rates = [sum(one.seconds for one in part) / sum(one.timed for one in part) for part in (plain, served)]
    return rates[0] / rates[1]
