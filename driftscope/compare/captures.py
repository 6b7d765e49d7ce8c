"""Whether runs measured the same texts: only then are their differences those of the drafters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from driftscope.errors import DriftscopeError
from driftscope.runs.run import Run
from driftscope.runs.summary import CLEAN

_SETTINGS = {
    "dtype": "--dtype",
    "max_new_tokens": "--max-new-tokens",
    "horizon": "--horizon",
    "sinks": "--sink",
    "anchors": "--anchors",
    "spread": "--anchors",
}
"""Setting -> the flag that chooses it."""


class CompareError(DriftscopeError):
    """Runs that cannot be compared."""


def common_prompts(runs: Sequence[Run], names: Sequence[str]) -> tuple[list[str], list[str]]:
    """The prompts that every run has measured, and what there is to note about it.

    Raises CompareError at the first difference in target, prompts, settings or texts, or if no prompt is common.
    """
    first = runs[0]
    for run, name in zip(runs[1:], names[1:], strict=True):
        difference = _difference(first, run)
        if difference:
            what, seen, expected, fix = difference
            raise CompareError(f"{name} has {what} {seen}, {names[0]} {expected}: {fix}")
    texts = [_texts(run) for run in runs]
    for number, (run, name) in enumerate(zip(runs, names, strict=True)):
        if texts[number].empty:
            raise CompareError(
                f"{name} holds no clean chains: go on with driftscope probe ... -o {run.folder} --resume"
            )
    joined = pd.concat(texts, axis=1, keys=range(len(runs)), join="inner")
    if joined.empty:
        raise CompareError("the runs have no anchor in common: probe them with the same prompts and settings")
    unlike = joined.nunique(axis=1) > 1
    if unlike.any():
        prompt = unlike[unlike].index[0][0]
        raise CompareError(
            f"the texts differ at prompt {prompt}: the target continued it otherwise; probe both on one machine with one cache"
        )
    prompts = sorted(joined.index.get_level_values(0).unique())
    measured = [part.index.get_level_values(0).nunique() for part in texts]
    notes = []
    if len(prompts) < max(measured):
        notes.append(f"compared on the {len(prompts)} prompts that every run has; the largest has {max(measured)}")
    return prompts, notes


def _difference(first: Run, other: Run) -> tuple[str, Any, Any, str] | None:
    """What differs, seen, expected, and what to do."""
    again = "probe both with the same"
    if other.info.target.fingerprint != first.info.target.fingerprint:
        return ("the target", other.info.target.name, first.info.target.name, f"{again} --target (weights differ)")
    seen, expected = ([prompt.id for prompt in run.info.prompts] for run in (other, first))
    if sorted(seen) != sorted(expected):
        only = sorted(set(seen) ^ set(expected))
        return (f"{len(seen)} prompts,", f"{only[0]} not in both", f"{len(expected)}", f"{again} --prompts")
    for name, flag in _SETTINGS.items():
        value, wanted = (run.info.settings.get(name) for run in (other, first))
        if value != wanted:
            return (name, value, wanted, f"{again} {flag}")
    return None


def _texts(run: Run) -> pd.Series:
    """The token after the anchor's first one, by (prompt, anchor)."""
    rows = run.table("anchors", CLEAN, columns=["variant", "feed", "prompt", "anchor", "step", "text"])
    rows = rows[(rows["variant"] == CLEAN) & (rows["feed"] == "drafted") & (rows["step"] == 1)]
    return rows.set_index([rows["prompt"].astype(str), "anchor"])["text"]
