"""Texts other than the run's: what a probe that changes the prompt has the target continue."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from driftscope.captures.capture import Capture
    from driftscope.target.prompts import Prompt

Item = TypeVar("Item")


@dataclass(frozen=True)
class Source:
    """A prompt of the run and the target's record of it."""

    prompt: Prompt
    capture: Capture

    @property
    def token_ids(self) -> tuple[int, ...]:
        """The prompt's tokens, without the continuation."""
        return tuple(self.capture.token_ids[: self.capture.prompt_length].tolist())


@dataclass(frozen=True)
class Condition:
    """One prompt of the run as a probe wants it asked instead."""

    name: str
    id: str
    """Of the prompt in the run, under which the rows are stored."""
    category: str
    token_ids: tuple[int, ...] = ()
    left_out: str | None = None
    """Why it is not measured; None where it is."""
    new_tokens: int | None = None
    """Length of the continuation; None is the run's."""
    system_rows: int = 0
    """The first so many rows hold the system prompt with what frames it; 0 where the probe does not say."""

    def without(self, reason: str) -> Condition:
        """The same condition, left out."""
        return dataclasses.replace(self, left_out=reason)


@dataclass(frozen=True)
class PlannedText:
    """Texts of one size that a probe will have captured and run chains over, for the estimate of its cost."""

    count: int
    """Over the whole run."""
    chains: int
    """Sets of chains over each."""
    prompt_tokens: int | None = None
    """None is the run's usual length."""
    new_tokens: int | None = None
    anchors: int | None = None


def distinct(conditions: Iterable[Condition]) -> list[Condition]:
    """Conditions of one prompt, those with the tokens of an earlier one left out."""
    seen: dict[tuple[int, ...], str] = {}
    kept = []
    for condition in conditions:
        if condition.left_out is None:
            first = seen.setdefault(condition.token_ids, condition.name)
            if first != condition.name:
                condition = condition.without(f"same tokens as {first}")
        kept.append(condition)
    return kept


def fitting(condition: Condition, new_tokens: int, room: int | None) -> Condition:
    """The condition, left out where the target has no room for it or there is nothing to continue."""
    if condition.left_out is not None:
        return condition
    length = len(condition.token_ids)
    if length < 2:
        return condition.without("fewer than 2 tokens")
    if room is not None and length + new_tokens > room:
        return condition.without(f"{length + new_tokens} tokens, the target holds {room}")
    return condition


def spread(items: Sequence[Item], count: int) -> list[Item]:
    """At most `count` items, evenly spaced, so that prompts sorted by category give some of each."""
    if len(items) <= count:
        return list(items)
    return [items[int(place)] for place in np.linspace(0, len(items) - 1, count).round()]


def condition_row(
    variant: str,
    prompt_id: str,
    *,
    prompt_tokens: int | None = None,
    text_tokens: int | None = None,
    double_bos: bool | None = None,
    left_out: str | None = None,
) -> dict[str, Any]:
    """One row of the `conditions` table."""
    return {
        "variant": variant,
        "prompt": prompt_id,
        "prompt_tokens": prompt_tokens,
        "text_tokens": text_tokens,
        "double_bos": double_bos,
        "left_out": left_out,
    }


def condition_table(rows: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """The `conditions` table, with types that hold a null."""
    types = {"prompt_tokens": "Int32", "text_tokens": "Int32", "double_bos": "boolean", "left_out": "string"}
    return pd.DataFrame(list(rows)).astype(types)
