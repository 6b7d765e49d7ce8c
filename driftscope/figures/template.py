"""Template: what is left of acceptance and drift when the prompt is wrapped otherwise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from driftscope import stats
from driftscope.figures.grids import prompts_and_depth
from driftscope.figures.kept import kept, levels, reasons

REGULAR = "template/regular"


def template_figures(
    steps: pd.DataFrame, heads: pd.DataFrame, conditions: pd.DataFrame, *, resamples: int = stats.RESAMPLES
) -> dict[str, Any]:
    """From the `steps`, `heads` and `conditions` rows of the probe; {} without any.

    `regular` and each of `conditions`, by name (`figures.kept`). A condition also has `left_out` (reason -> prompts) and
    `applicable`, false where no prompt gives a text of its own; `sentence`. `double_bos`: the conditions, regular included, in
    which prompts start with two beginning-of-text tokens.
    """
    if conditions.empty:
        return {}
    prompts, depth = prompts_and_depth(steps)
    prompts = prompts or sorted(conditions["prompt"].astype(str).unique())
    names = [str(name) for name in dict.fromkeys(conditions["variant"].astype(str))]
    doubled = conditions["variant"].astype(str)[conditions["double_bos"].fillna(False).astype(bool)]
    result: dict[str, Any] = {
        "depth": depth,
        "prompts": len(prompts),
        "double_bos": [_short(name) for name in names if (doubled == name).any()],
        "conditions": {},
    }
    held = set(steps["variant"].astype(str).unique())
    measured = [name for name in names if name in held]
    own = levels(steps, heads, measured, prompts, depth, resamples=resamples) if measured else {}
    others = [name for name in measured if name != REGULAR]
    against = kept(steps, heads, others, REGULAR, prompts, depth, resamples=resamples) if others else {}
    for name in names:
        found = own.get(name, {})
        if name == REGULAR:
            result["regular"] = found
            continue
        found |= against.get(name, {})
        found["left_out"] = reasons(conditions, name)
        found["applicable"] = name in held
        found["sentence"] = _sentence(_short(name), found)
        result["conditions"][_short(name)] = found
    return result


def _short(name: str) -> str:
    return name.removeprefix("template/")


def _sentence(name: str, found: dict[str, Any]) -> str:
    if not found["applicable"]:
        why = next(iter(found["left_out"]), "nothing was captured")
        return f"{name}: not applicable ({why})"
    length = found["length_kept"].get("anchor_mean")
    if length is None:
        return f"{name}: not measurable: too few anchors, or nothing is accepted under the regular template"
    text = f"{name}: keeps {length['mean']:.0%} of the accepted length"
    if length["low"] is not None:
        text += f" (95% {length['low']:.0%} to {length['high']:.0%})"
    return f"{text} over {found['paired']} prompt{'' if found['paired'] == 1 else 's'}"


def template_rows(figures: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Per `condition` against the regular template on the same prompts: `quantity` length_kept (anchor mean), growth_kept,
    excess_kept (1 = as under the regular one), excess_change (difference of masses)."""
    for condition, told in figures.get("conditions", {}).items():
        count = {"count": told.get("paired", 0), "counted": "prompts with both"}
        figures_of = {"length_kept": told.get("length_kept", {}).get("anchor_mean")}
        figures_of |= {name: told.get(name) for name in ("growth_kept", "excess_kept", "excess_change")}
        for name, figure in figures_of.items():
            if figure is not None:
                yield {"condition": condition, "quantity": name, **figure, **count}
