"""Any figures as tidy rows, and figures for any probe that stores `steps`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from driftscope import stats
from driftscope.figures.grids import Grids, prompts_and_depth, put
from driftscope.stats.intervals import Floats

ENDS = ("mean", "low", "high")
SHARES = {"match": "matches", "joint": "accepted"}
"""Figure -> the column of `steps` that it is made of, over the anchors."""


def tidy_rows(figures: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A row for every figure, however deep it lies: `quantity` is the way to it, in the order of the keys (`pins/fused/slope`); an
    entry of a list adds its first plain value as an axis (`step`, `alpha`), and everything else beside a mean is kept."""
    return list(_walk(figures, (), {}))


def _walk(content: Any, path: tuple[str, ...], axes: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    if isinstance(content, Mapping):
        if _is_figure(content):
            own = {name: value for name, value in content.items() if name not in ENDS and _is_plain(value)}
            ends = {name: content.get(name) for name in ENDS}
            yield {**axes, **own, "quantity": "/".join(path) or "figure", **ends}
            return
        for name, part in content.items():
            yield from _walk(part, (*path, str(name)), axes)
    elif isinstance(content, Sequence) and not isinstance(content, str):
        for part in content:
            if not isinstance(part, Mapping):
                continue
            # A list of figures is one quantity along an axis; other lists group several, which need no name of their own.
            first = next((name for name, value in part.items() if name not in ENDS and _is_plain(value)), None)
            own = {} if first is None else {first: part[first]}
            way = path if _is_figure(part) else path[:-1] if path and path[-1] in ("steps", "levels") else path
            yield from _walk(part, way, {**axes, **own})


def _is_figure(content: Any) -> bool:
    return isinstance(content, Mapping) and isinstance(content.get("mean"), int | float)


def _is_plain(value: Any) -> bool:
    return isinstance(value, int | float | str) and not isinstance(value, bool)


def step_figures(steps: pd.DataFrame, *, resamples: int = stats.RESAMPLES) -> dict[str, Any]:
    """From the `steps` rows of any probe; {} without any. By variant and feed, per step: `match`, the share of anchors outside
    loops whose drafted token is the text's; `joint`, with all earlier ones right; and the mean over those anchors of every
    quantity that was summed. Ratios of sums over prompts."""
    if steps.empty:
        return {}
    prompts, depth = prompts_and_depth(steps)
    grids = Grids(steps, prompts, depth)
    sums = {name.removeprefix("sum/"): name for name in map(str, steps) if name.startswith("sum/")}
    found: dict[str, Any] = {"prompts": len(prompts), "variants": {}}
    for variant, feed in dict.fromkeys(zip(steps["variant"].astype(str), steps["feed"].astype(str), strict=True)):
        key = variant, feed
        anchors = grids.sum("anchors", key)
        entries = [{"step": k + 1, "anchors": int(np.nansum(anchors[:, k]))} for k in range(depth)]
        for name, column in {**SHARES, **sums}.items():
            _put_all(entries, name, grids.sum(column, key), anchors, resamples)
        found["variants"].setdefault(variant, {})[feed] = entries
    return found


def step_figure_rows(figures: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The same as tidy rows: `variant`, `feed`, `step`, `quantity`."""
    for variant, feeds in figures.get("variants", {}).items():
        for feed, entries in feeds.items():
            for entry in entries:
                axes = {"variant": variant, "feed": feed, "step": entry["step"]}
                count = {"count": entry["anchors"], "counted": "anchors"}
                yield from (
                    {**axes, "quantity": name, **figure, **count}
                    for name, figure in entry.items()
                    if _is_figure(figure)
                )


def _put_all(entries: list[dict[str, Any]], name: str, total: Floats, anchors: Floats, resamples: int) -> None:
    if not np.isfinite(total).any():
        return
    counted = np.where(np.isfinite(total), anchors, np.nan)
    means = stats.ratio_of_sums(total, counted, resamples=resamples)
    for place, entry in enumerate(entries):
        put(entry, name, means, place)
