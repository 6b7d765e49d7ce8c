"""The rounds that an engine would serve, from the undisturbed chains of a run: every K at once, without serving anything."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray

from driftscope import stats
from driftscope.errors import RunError
from driftscope.runs.prompt_sums import chain_order, check_filled, prompt_codes
from driftscope.runs.summary import clean_rows, unconfirmed
from driftscope.stats.intervals import Floats

if TYPE_CHECKING:
    from driftscope.runs.folder import RunFolder


@dataclass(frozen=True)
class Drafts:
    """What the drafter drafts at every anchor, by prompt and then anchor."""

    prompts: list[str]
    prompt: Int[NDArray[np.int64], " chain"]
    """Place in `prompts`."""
    length: Int[NDArray[np.int64], " chain"]
    """Accepted tokens, at most `depth`."""
    confidence: Float[NDArray[np.float64], "chain step"]
    """The drafter's probability of the token that it drafts; NaN where it was not stored."""
    loop: Bool[NDArray[np.bool_], " chain"]
    depth: int

    def by_prompt(self) -> Iterator[slice]:
        """The chains of each prompt."""
        ends = np.cumsum(np.bincount(self.prompt, minlength=len(self.prompts)))
        yield from (slice(start, end) for start, end in zip([0, *ends[:-1]], ends, strict=True))

    def served(self, drafted: int) -> tuple[Floats, Floats]:
        """[prompt] accepted tokens, without bonus tokens, and rounds of the walk at K = `drafted`."""
        walks = [stats.served_walk(self.length[part], drafted) for part in self.by_prompt()]
        return tuple(np.array([float(getattr(walk, name)) for walk in walks]) for name in ("total", "rounds"))  # type: ignore[return-value]

    def served_choice(
        self, drafted: Int[NDArray[np.int64], " chain"]
    ) -> tuple[Floats, Int[NDArray[np.int64], "prompt k"]]:
        """The walk whose round at each anchor drafts a number of its own: [prompt] tokens with the bonus ones, and how many rounds
        of each prompt drafted 0, 1, .. tokens."""
        counts = np.minimum(self.length, drafted)
        tokens = np.zeros(len(self.prompts))
        rounds = np.zeros((len(self.prompts), self.depth + 1), dtype=np.int64)
        for number, part in enumerate(self.by_prompt()):
            own, asked = (counts[part] + 1).tolist(), drafted[part].tolist()
            place = 0
            while place < len(own):
                rounds[number, asked[place]] += 1
                tokens[number] += own[place]
                place += own[place]
        return tokens, rounds


def read_drafts(run: RunFolder, longest: int | None = None) -> Drafts:
    """From the run's clean chains, drafted feed. RunError where they do not tell what an engine would serve."""
    reason = unconfirmed(run.info.settings)
    if reason:
        raise RunError(f"run {run.folder} has no acceptance: {reason}")
    rows = clean_rows(run, "drafted", ("accepted", "top_prob"))
    if rows.empty or rows["accepted"].isna().all():
        raise RunError(
            f"run {run.folder} holds no acceptance yet: measure it with driftscope probe --probes acceptance"
        )
    rows = rows[rows["accepted"].notna()]
    deepest = int(rows["step"].max())
    if longest is not None and not 1 <= longest <= deepest:
        raise RunError(f"--max-k {longest}: run {run.folder} holds {deepest} steps; probe again with --depth {longest}")
    depth = longest or deepest
    rows = rows[rows["step"] <= depth]
    prompt, names = prompt_codes(rows["prompt"])
    anchor, step = (rows[name].to_numpy(np.int64) for name in ("anchor", "step"))
    check_filled(len(names) * depth, len(rows))
    order, first = chain_order(prompt, anchor, step)
    count = int(first.sum())
    if count * depth != len(rows) or not (step[order].reshape(count, depth) == np.arange(1, depth + 1)).all():
        raise RunError(f"run {run.folder}: its chains do not hold every step: changed or damaged; measure again")
    start = order[first]
    if not (np.diff(anchor[start])[np.diff(prompt[start]) == 0] == 1).all():
        raise RunError(
            f"run {run.folder} holds some anchors of each prompt only, over which no rounds can be walked: probe without --anchors"
        )

    def cells(name: str) -> Floats:
        return rows[name].to_numpy(np.float64, na_value=np.nan)[order].reshape(count, depth)

    confidence = cells("top_prob") if "top_prob" in rows else np.full((count, depth), np.nan)
    return Drafts(
        prompts=names,
        prompt=prompt[start],
        length=cells("accepted").sum(1).astype(np.int64),
        confidence=confidence,
        loop=rows["loop"].to_numpy(bool)[start],
        depth=depth,
    )
