"""Acceptance, cost of drift and reasons of rejection by the kind of a token and by its place in the answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from numpy.typing import NDArray

from driftscope import stats
from driftscope.chain.patches import OWN, REAL, REASONS
from driftscope.figures.cost import COLUMNS, PROBE
from driftscope.figures.cost_sums import cost_sums
from driftscope.figures.grids import put
from driftscope.figures.token_groups import PLACES, TYPES, TextTypes, places
from driftscope.runs.prompt_sums import prompt_codes
from driftscope.stats.intervals import Floats

if TYPE_CHECKING:
    from driftscope.runs.folder import RunFolder

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class TextTokens:
    """Tokens of texts, each with what is told of it."""

    prompts: Sequence[str]
    prompt: Int[NDArray[np.int64], " token"]
    """Place in `prompts`."""
    position: Int[NDArray[np.int64], " token"]
    values: Float[NDArray[np.float64], "token value"]

    def mean(self, here: NDArray[np.bool_], resamples: int) -> stats.Intervals:
        """[value] means over the tokens `here`, ratios of sums over prompts."""
        size = len(self.prompts)
        count = np.bincount(self.prompt[here], minlength=size).astype(np.float64)
        total = np.stack([np.bincount(self.prompt[here], column[here], minlength=size) for column in self.values.T], 1)
        return stats.ratio_of_sums(total, np.broadcast_to(count[:, None], total.shape), resamples=resamples)


def token_rows(run: RunFolder, rows: pd.DataFrame, depth: int, resamples: int) -> list[dict[str, Any]]:
    """rows: of the clean chains, drafted feed. A row for every kind of token and for every place, as `traffic_figures` has them."""
    lengths = {prompt.id: prompt.prompt_length for prompt in run.info.prompts}
    types = TextTypes(run.table("tokens", "clean", columns=("prompt", "position", "piece")), lengths)

    def place(tokens: TextTokens) -> Ints:
        starts = np.array([lengths.get(name, 0) for name in tokens.prompts], dtype=np.int64)
        return places(tokens.position - starts[tokens.prompt] - 1)

    kinds: list[tuple[str, Sequence[str], Callable[[TextTokens], Ints]]] = [("place", PLACES, place)]
    if types:
        kinds.insert(0, ("token", TYPES, lambda tokens: types.at(tokens.prompts, tokens.prompt, tokens.position)))
    drafted, priced, ended = _alive(rows), _priced(run, depth), _ended(run, depth)
    found = []
    for by, names, group_of in kinds:
        groups, cost_groups, end_groups = (
            None if part is None else group_of(part) for part in (drafted, priced, ended)
        )
        assert groups is not None
        for number, name in enumerate(names):
            here = groups == number
            if not here.any():
                continue
            entry: dict[str, Any] = {"by": by, "group": name, "tokens": int(here.sum())}
            put(entry, "accepted", drafted.mean(here, resamples), 0)
            if priced is not None and cost_groups is not None:
                put(entry, "cost", priced.mean(cost_groups == number, resamples), 0)
            if ended is not None and end_groups is not None and (ends := end_groups == number).any():
                shares = ended.mean(ends, resamples)
                reasons: dict[str, Any] = {}
                for column, reason in enumerate(REASONS):
                    if ended.values[:, column].any():
                        put(reasons, reason, shares, column)
                entry |= {"reasons": reasons, "rejected": int(ends.sum())}
            found.append(entry)
    return found


def _alive(rows: pd.DataFrame) -> TextTokens:
    """The tokens of chains outside loops whose earlier tokens were all accepted: whether they were drafted."""
    prompt, names = prompt_codes(rows["prompt"])
    anchor, step = (rows[name].to_numpy(np.int64) for name in ("anchor", "step"))
    accepted, match = (rows[name].to_numpy(bool) for name in ("accepted", "match"))
    order = np.lexsort((step, anchor, prompt))
    before = np.ones(len(rows), dtype=bool)
    before[order[1:]] = accepted[order[:-1]]
    alive = (before | (step == 1)) & ~rows["loop"].to_numpy(bool)
    return TextTokens(names, prompt[alive], (anchor + 1 + step)[alive], match[alive, None].astype(np.float64))


def _priced(run: RunFolder, depth: int) -> TextTokens | None:
    """What the real rows draft right more than the chain does, of the tokens of its living chains."""
    if PROBE not in run.probes:
        return None
    sums = cost_sums(run.table("anchors", PROBE, columns=COLUMNS), depth)
    if sums is None:
        return None
    chain, step = np.nonzero(sums.alive & ~sums.loop[:, None])
    own, real = (sums.right[sums.patches.index(name)][chain, step].astype(np.float64) for name in (OWN, REAL))
    values: Floats = (real - own)[:, None]
    return TextTokens(sums.prompts, sums.prompt[chain], sums.anchor[chain] + 2 + step, values)


def _ended(run: RunFolder, depth: int) -> TextTokens | None:
    """The tokens at which chains outside loops end: one column a reason."""
    if PROBE not in run.probes:
        return None
    rows = run.table("rejections", PROBE)
    rows = rows[(rows["step"] <= depth).fillna(False).to_numpy(bool) & ~rows["loop"].to_numpy(bool)]
    if rows.empty:
        return None
    prompt, names = prompt_codes(rows["prompt"])
    position = rows["anchor"].to_numpy(np.int64) + 1 + rows["step"].to_numpy(np.int64)
    reason = rows["reason"].astype(str).to_numpy()
    values = np.stack([reason == name for name in REASONS], 1).astype(np.float64)
    return TextTokens(names, prompt, position, values)
