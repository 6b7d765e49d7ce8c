"""Length: where acceptance breaks as the text grows, and which attention window rescues it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd

from driftscope import stats
from driftscope.errors import RunError
from driftscope.figures.grids import prompts_and_depth
from driftscope.figures.kept import kept, levels, reasons
from driftscope.runs.parameters import LENGTH, parameters_of

if TYPE_CHECKING:
    from driftscope.runs.folder import RunFolder

FULL = "full"
HALF = 0.5
BEHIND = "nothing of the text lies behind"
"""How the reason begins for which a window is no other condition than full attention."""


def length_figures(
    steps: pd.DataFrame,
    heads: pd.DataFrame,
    conditions: pd.DataFrame,
    variants: pd.DataFrame,
    *,
    position_limit: int | None = None,
    resamples: int = stats.RESAMPLES,
) -> dict[str, Any]:
    """From the `steps`, `heads`, `conditions` and `variants` rows of the probe; {} without any.

    `policies`: by name, a list over `text_length` (`figures.kept`, against full attention at the shortest length measured), with
    `tokens` (mean length of the texts), `beyond_limit` (longer than `position_limit`, the positions that the drafter's config
    names), `same_as_full` where a window hides nothing, `left_out` (reason -> texts). `breaks`: per policy the first length from
    which on less than half is kept (`at`; "none" or "not measurable"), `certain` where every interval from there on
    excludes half. `rescues`: per window, whether it keeps half at every length at which full attention broke, and `certain`
    likewise. `sentence` says so.
    """
    if variants.empty or conditions.empty:
        return {}
    prompts, depth = prompts_and_depth(steps)
    plan = list(parameters_of(variants, LENGTH).items())
    sizes = sorted({parameters["length"] for _, parameters in plan})
    names = {(parameters["length"], parameters["policy"]): name for name, parameters in plan}
    policies = list(dict.fromkeys(parameters["policy"] for _, parameters in plan))
    if FULL not in policies or len(names) < len(sizes) * len(policies):
        raise RunError("the length probe lacks variants of some lengths; measure it again")
    measured = set(steps["variant"].astype(str).unique())
    reference = next((names[size, FULL] for size in sizes if names[size, FULL] in measured), None)
    held = [name for name in dict.fromkeys(names.values()) if name in measured] if reference is not None else []
    own = levels(steps, heads, held, prompts, depth, resamples=resamples) if held else {}
    against = kept(steps, heads, held, str(reference), prompts, depth, resamples=resamples) if held else {}
    rows: dict[str, list[dict[str, Any]]] = {}
    for policy in policies:
        rows[policy] = []
        for size in sizes:
            name = names[size, policy]
            why = reasons(conditions, f"length/{size}") | reasons(conditions, name)
            found: dict[str, Any] = {"text_length": size, "left_out": why}
            if name not in measured and any(reason.startswith(BEHIND) for reason in why):
                found, name = {**found, "left_out": {}, "same_as_full": True}, names[size, FULL]
            if name in own:
                found |= own[name] | against[name]
                texts = conditions[conditions["variant"] == f"length/{size}"]
                found["tokens"] = float(texts["text_tokens"].astype(float).mean())
                if position_limit is not None:
                    found["beyond_limit"] = found["tokens"] > position_limit
            rows[policy].append(found)
    result: dict[str, Any] = {"depth": depth, "texts": len(prompts), "policies": rows}
    if position_limit is not None:
        result["position_limit"] = position_limit
    window = next((p["window"] for _, p in plan if p["window"] is not None), None)
    result["window"] = window
    result["breaks"] = {policy: _break(rows[policy]) for policy in policies}
    result["rescues"] = _rescues(rows, result["breaks"][FULL]["at"])
    result["sentence"] = _sentence(result)
    return result


def _share(row: dict[str, Any]) -> dict[str, Any] | None:
    return row.get("length_kept", {}).get("anchor_mean")


def _break(rows: list[dict[str, Any]]) -> dict[str, Any]:
    shares = [(row["text_length"], share) for row in rows if (share := _share(row)) is not None]
    if len(shares) < 2:
        return {"at": "not measurable"}
    broken: list[tuple[int, dict[str, Any]]] = []
    for length, share in reversed(shares):
        if share["mean"] >= HALF:
            break
        broken.insert(0, (length, share))
    if broken:
        certain = all(share["high"] is not None and share["high"] < HALF for _, share in broken)
        return {"at": broken[0][0], "certain": certain}
    certain = all(share["low"] is not None and share["low"] > HALF for _, share in shares[1:])
    return {"at": "none", "certain": certain}


def _rescues(rows: dict[str, list[dict[str, Any]]], broken: int | str) -> dict[str, Any]:
    """Empty where full attention does not break."""
    found: dict[str, Any] = {}
    for policy, own in rows.items():
        if policy == FULL or not isinstance(broken, int):
            continue
        shares = [_share(row) for row in own if row["text_length"] >= broken]
        present = [share for share in shares if share is not None]
        if len(present) < len(shares) or any(row.get("same_as_full") for row in own if row["text_length"] >= broken):
            continue
        rescued = all(share["mean"] >= HALF for share in present)
        ends = [share["low"] if rescued else share["high"] for share in present]
        apart = [end is not None and (end > HALF if rescued else end < HALF) for end in ends]
        found[policy] = {"rescues": rescued, "certain": all(apart) if rescued else any(apart)}
    return found


def _sentence(result: dict[str, Any]) -> str:
    broken = result["breaks"][FULL]["at"]
    limit = result.get("position_limit")
    end = f"; the drafter's config names {limit} positions" if limit is not None else ""
    if broken == "not measurable":
        return "not measurable: fewer than two lengths could be measured, or nothing is accepted at the shortest"
    few = "" if result["texts"] >= stats.MIN_PROMPTS else f", as far as {result['texts']} texts can tell"
    if broken == "none":
        longest = max(row["text_length"] for row in result["policies"][FULL] if _share(row) is not None)
        return f"acceptance does not break up to {longest} tokens{few}{end}"
    row = next(row for row in result["policies"][FULL] if row["text_length"] == broken)
    share = _share(row) or {}
    text = f"acceptance breaks at {broken} tokens{few}: {share['mean']:.0%} of the length is kept"
    if share["low"] is not None:
        text += f" (95% {share['low']:.0%} to {share['high']:.0%})"
    rescuers = [name for name, found in result["rescues"].items() if found["rescues"]]
    if rescuers:
        kept_by = "; ".join(f"{_policy(name, result['window'])} rescues it" for name in rescuers)
        return f"{text}; {kept_by}{end}"
    return f"{text}; no window rescues it{end}" if result["rescues"] else f"{text}{end}"


def _policy(name: str, window: int | None) -> str:
    behind = {"window": "", "window+sink": " with the sink", "window+system": " with the system prompt"}
    return f"a window of {window}{behind.get(name, '')}"


def position_limit_of(run: RunFolder) -> int | None:
    """The positions that the drafter's config names; None where it names none."""
    checkpoint = run.info.checkpoint
    origin = checkpoint.origins.get("rope.max_position", {})
    limit = checkpoint.switches.get("rope.max_position")
    return None if limit is None or origin.get("source", "default") == "default" else int(limit)


def length_rows(figures: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Per attention `policy` and `length` of the text in tokens: `quantity` anchor_mean (accepted tokens a chain, without
    bonus tokens), length_kept (against full attention at the shortest length), growth, excess."""
    for policy, rows in figures.get("policies", {}).items():
        for row in rows:
            axes = {"policy": policy, "length": row["text_length"]}
            count = {"count": row.get("anchors", 0), "counted": "anchors"}
            found = {
                "anchor_mean": row.get("length", {}).get("anchor_mean"),
                "length_kept": row.get("length_kept", {}).get("anchor_mean"),
                "growth": row.get("growth"),
                "excess": row.get("excess"),
            }
            yield from ({**axes, "quantity": name, **value, **count} for name, value in found.items() if value)
