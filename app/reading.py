"""One prompt of a run to read along: its text, what was drafted at every anchor, and where each step looked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from driftscope.errors import RunError
from driftscope.runs.run import Run
from driftscope.runs.summary import CLEAN
from driftscope.show.frames import Runs

COST = "cost"
_ENDS = ["anchor", "step", "reason", "prob", "target_prob"]
_CHAIN = ["anchor", "step", "loop", "drafted", "text", "match", "accepted", "rank", "prob", "top_prob"]


@dataclass(frozen=True)
class Key:
    """One key that a step looks at."""

    position: int
    own: bool
    """A row of the chain itself."""
    bucket: str
    mass: float

    def step(self, anchor: int) -> int:
        """Of an own row: the step that made it."""
        return self.position - anchor + 1


@dataclass(frozen=True)
class Reading:
    """What a run holds of one prompt."""

    prompt: str
    prompt_length: int
    text: tuple[str, ...]
    """Pieces by position."""
    pieces: dict[int, str]
    """By token id, of the text and of what was drafted."""
    chains: pd.DataFrame
    """One row per anchor and step: drafted and target's token, acceptance, rank, probabilities, bucket masses."""
    attended: pd.DataFrame
    """One row per anchor, step and heavy key: `position`, `own`, `bucket`, `mass`."""
    ends: pd.DataFrame
    """One row per anchor of the probe `cost`: `step`, `reason`, `prob`, `target_prob`; empty where it was not run."""

    @property
    def anchors(self) -> list[int]:
        return sorted(set(self.chains["anchor"]))

    def chain(self, anchor: int) -> pd.DataFrame:
        """The steps of one chain, in order."""
        return self.chains[self.chains["anchor"] == anchor].sort_values("step")

    def keys(self, anchor: int, step: int) -> list[Key]:
        """The heaviest keys of one step, heaviest first."""
        rows = self.attended[(self.attended["anchor"] == anchor) & (self.attended["step"] == step)]
        rows = rows.sort_values("mass", ascending=False)
        columns = (rows[name].tolist() for name in ("position", "own", "bucket", "mass"))
        return [Key(*values) for values in zip(*columns, strict=True)]

    def piece(self, token: Any) -> str:
        """A token as text."""
        return self.pieces.get(int(token), f"[{int(token)}]")


def prompts(runs: Runs) -> list[str]:
    """Ids of the prompts whose text the run holds."""
    held = set(runs[0].table("tokens", CLEAN, columns=["prompt"])["prompt"].unique())
    return [prompt.id for prompt in runs[0].info.prompts if prompt.id in held]


def reading(runs: Runs, prompt: str) -> Reading:
    """One prompt of the (only) run."""
    run = runs[0]
    tokens = run.prompt_table("tokens", CLEAN, prompt)
    pieces = {int(token): str(piece) for token, piece in zip(tokens["id"], tokens["piece"], strict=True)}
    text = tokens.dropna(subset=["position"]).sort_values("position")
    rows = run.prompt_table("anchors", CLEAN, prompt)
    masses = [name for name in rows if str(name).startswith("mass/")]
    keep = (rows["variant"] == CLEAN) & (rows["feed"] == "drafted")
    chains = rows.loc[keep, [*_CHAIN, *masses]].reset_index(drop=True)
    heavy = run.prompt_table("attended", CLEAN, prompt)[["anchor", "step", "position", "own", "bucket", "mass"]]
    length = next(entry.prompt_length for entry in run.info.prompts if entry.id == prompt)
    attended = heavy.astype({"bucket": str}).reset_index(drop=True)
    return Reading(prompt, length, tuple(text["piece"].astype(str)), pieces, chains, attended, _ends(run, prompt))


def mean_lengths(runs: Runs) -> dict[str, float]:
    """Accepted tokens per anchor outside loops by prompt, those that lose most first; a prompt without any is last."""
    run = runs[0]
    rows = run.table("anchors", CLEAN, columns=["variant", "feed", "prompt", "anchor", "loop", "accepted"])
    rows = rows[(rows["variant"] == CLEAN) & (rows["feed"] == "drafted") & ~rows["loop"] & rows["accepted"].notna()]
    by_prompt = rows.groupby(rows["prompt"].astype(str))
    found = (by_prompt["accepted"].sum() / by_prompt["anchor"].nunique()).sort_values(kind="stable")
    return {str(name): float(value) for name, value in found.items()}


def _ends(run: Run, prompt: str) -> pd.DataFrame:
    try:
        rows = run.prompt_table("rejections", COST, prompt)
    except RunError:
        return pd.DataFrame(columns=_ENDS)
    return rows[_ENDS].reset_index(drop=True) if len(rows) else pd.DataFrame(columns=_ENDS)


def accepted_lengths(chains: pd.DataFrame) -> dict[int, int]:
    """Accepted tokens of the chain at each anchor; empty where acceptance was not measured."""
    told = chains[chains["accepted"].notna()]
    return {int(anchor): int(np.sum(rows)) for anchor, rows in told.groupby("anchor")["accepted"]}
