"""Norms by target boundary, aux feature, site and step. RMS unless `unit` is "l2" (L2 = RMS * sqrt(width))."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd

from driftscope import stats
from driftscope.runs.prompt_sums import Ints, PromptCells, divided, prompt_codes
from driftscope.runs.run import Run
from driftscope.runs.summary import CLEAN
from driftscope.show.frames.base import Runs, anchor_rows, joined, labelled, step_means, tidy
from driftscope.stats.intervals import Floats

Unit = Literal["rms", "l2"]
SiteMode = Literal["size", "growth", "matched"]
SITE_MODES: dict[SiteMode, str] = {
    "size": "as it is",
    "growth": "over step 1",
    "matched": "over the same position without drafting",
}
_BEFORE = ("fused", "state", "embed", "embed_norm", "state_norm", "layer_input")
_INSIDE = ("q", "k", "v", "attn_update", "after_attn", "mlp_update")
_AFTER = ("residual", "final_norm", "carry")


def layer_norms(runs: Runs, unit: Unit = "rms") -> pd.DataFrame:
    """Norm of the target's residual stream by `boundary` and `region` (sink, prompt, continuation): mean over a prompt's
    positions, then over prompts. `aux`: a boundary that the drafter reads. Runs on the same target and prompts that give
    the same norms appear once, under the target's name.
    """
    parts: list[pd.DataFrame] = []
    for label, run in labelled(runs).items():
        rows = run.table("layers", probe=CLEAN)
        if rows.empty:
            continue
        scale = np.sqrt(run.info.target.hidden_size) if unit == "l2" else 1.0
        axes = ("boundary", "region")
        part = _over_prompts(label, rows, axes, {"norm": ("sum_rms", scale)}, stats.bca)
        part["aux"] = part["boundary"].isin(run.info.checkpoint.switches.get("aux_boundaries") or ())
        parts.append(part)
    if len(parts) > 1 and all(_same(parts[0], part) for part in parts[1:]):
        return parts[0].assign(run=next(iter(runs)).info.target.name)
    return joined(parts, "boundary", "region", "quantity", "aux")


def aux_norms(runs: Runs, unit: Unit = "rms") -> pd.DataFrame:
    """Per aux feature (`feature`, `boundary`) and `region` (sink, other): `quantity` raw (norm as the target gives it),
    normed (after its own norm), share (of the block in the fused input, 0 to 1)."""
    parts = []
    for label, run in labelled(runs).items():
        rows = run.table("aux", probe=CLEAN)
        if rows.empty:
            continue
        # Sums before ratios: the regions that are not a sink become one.
        rows = rows.assign(region=np.where(rows["region"] == "sink", "sink", "other"))
        sums = [name for name in ("sum_rms", "sum_rms_normed", "sum_share") if name in rows]
        keys = ["prompt", "index", "boundary", "region"]
        rows = rows.groupby(keys, observed=True, as_index=False)[["positions", *sums]].sum(min_count=1)
        scale = np.sqrt(run.info.target.hidden_size) if unit == "l2" else 1.0
        sizes = {"raw": ("sum_rms", scale), "normed": ("sum_rms_normed", scale), "share": ("sum_share", 1.0)}
        part = _over_prompts(label, rows, ("index", "boundary", "region"), sizes, stats.bca)
        part["feature"] = "boundary " + part["boundary"].astype(str)
        parts.append(part)
    return joined(parts, "index", "boundary", "region", "quantity", "feature")


def site_norms(runs: Runs, mode: SiteMode = "size", unit: Unit = "rms", feed: str = "drafted") -> pd.DataFrame:
    """Norm per `site` and `step`: as it is (mean), or as a ratio (geometric mean): `growth` over the anchor's own step 1,
    `matched` over step 1 of the anchor t+k-1, which sees the same position with real target features.

    `matched` of the carry is the stored figure; elsewhere it needs consecutive anchors, and the last k-1 anchors of a
    prompt have no partner at step k: `count` says how many had one.
    """
    parts = []
    for label, run in labelled(runs).items():
        sites = sites_of(run)
        rows = anchor_rows(run, [*sites, "matched_growth"], feed, loops=True)
        if rows.empty or not sites:
            continue
        kept = ~rows["loop"].to_numpy()
        cells = PromptCells(rows[kept])
        values = _site_values(rows, sites, mode)
        means = np.stack([cells.mean(value[kept]) for value in values], -1)
        count = np.stack([cells.count(value[kept]) for value in values], -1)
        figures = stats.bca(means)
        if mode == "size":
            scales = [site_width(run, name) ** 0.5 if unit == "l2" else 1.0 for name in sites]
            figures = figures.map(functools.partial(np.multiply, np.array(scales)))
        else:
            figures = figures.map(np.exp)
        axes: dict[str, list[Any]] = {"step": cells.steps, "site": [name.removeprefix("rms/") for name in sites]}
        parts.append(tidy(label, figures, axes, count.sum(0), "anchors", cells.prompts))
    return joined(parts, "step", "site")


def carry_norms(runs: Runs, unit: Unit = "rms", feed: str = "drafted", before: int = 3) -> pd.DataFrame:
    """Norm of the carry by `step`, after that of the `before` rows ahead of the anchor, which real target features made: row
    t-j has step 1-j, and `where` names both. Those rows are step 1 of the anchors before, so they need consecutive anchors."""
    parts = []
    for label, run in labelled(runs).items():
        rows = anchor_rows(run, ["rms/carry"], feed, loops=True)
        if rows.empty or "rms/carry" not in rows:
            continue
        size = rows["rms/carry"].to_numpy(np.float64) * (site_width(run, "rms/carry") ** 0.5 if unit == "l2" else 1.0)
        kept = ~rows["loop"].to_numpy(bool)
        cells = PromptCells(rows[kept])
        values, counts, steps = [cells.mean(size[kept])], [cells.count(size[kept])], [cells.steps]
        first = kept & (rows["step"].to_numpy() == 1)
        ahead = PromptCells(rows[first])
        for shift in range(1, before + 1):
            partner = _partner(rows, -shift)
            sizes = np.where(partner >= 0, size[partner], np.nan)[first]
            values.insert(0, ahead.mean(sizes))
            counts.insert(0, ahead.count(sizes))
            steps.insert(0, [1 - shift])
        axis = {"step": [step for part in steps for step in part]}
        figures = stats.bca(np.concatenate(values, axis=1))
        part = tidy(label, figures, axis, np.concatenate(counts, axis=1).sum(0), "anchors", cells.prompts)
        parts.append(part[part["count"] > 0])
    frame = joined(parts, "step")
    where = [f"step {step}" if step > 0 else f"prefill row t-{1 - step}" for step in frame["step"]]
    return frame.assign(where=where, site="carry")


def cosines(runs: Runs, feed: str = "drafted") -> pd.DataFrame:
    """Cosines of the carry per step: with that of the step before, and with the same position without drafting."""
    names = {"cos_prev": "with the step before", "cos_baseline": "with the same position without drafting"}
    return step_means(runs, names, feed)


def update_ratios(runs: Runs, feed: str = "drafted") -> pd.DataFrame:
    """RMS of each update over that of the residual that it is added to, per step."""
    found = dict.fromkeys(str(name) for run in runs for name in run.table("anchors", CLEAN, columns=["update_ratio/"]))
    names = {name: name.removeprefix("update_ratio/") for name in found}
    return step_means(runs, names, feed)


def sites_of(run: Run) -> list[str]:
    """The `rms/{site}` columns of a run in the order in which the drafter computes the sites; aux features are left out."""
    names = [str(name) for name in run.table("anchors", CLEAN, columns=["rms/"])]
    return sorted((name for name in names if not name.startswith("rms/aux")), key=_place)


def site_width(run: Run, column: str) -> int:
    """Elements that an RMS at `rms/{site}` is taken over: the drafter's width, a head's for q, k and v."""
    switches = run.info.checkpoint.switches
    if re.fullmatch(r"rms/layers\.\d+\.[qkv]", column):
        values = column.endswith(".v") and switches.get("v_head_dim")
        return int(values or switches["head_dim"])
    wide = switches.get("wide_output") and re.fullmatch(r"rms/(residual|layers\.\d+\.mlp_update)", column)
    return int(switches.get("hidden_size") or run.info.target.hidden_size) * (2 if wide else 1)


def _place(column: str) -> tuple[int, int, int, str]:
    site = column.removeprefix("rms/")
    if site.startswith("layers."):
        _, layer, part = site.split(".", 2)
        return 1, int(layer), _INSIDE.index(part) if part in _INSIDE else len(_INSIDE), part
    if site in _BEFORE:
        return 0, 0, _BEFORE.index(site), site
    return 2, 0, _AFTER.index(site) if site in _AFTER else len(_AFTER), site


def _site_values(rows: pd.DataFrame, sites: Sequence[str], mode: SiteMode) -> list[Floats]:
    """One value per row and site: a size, or the log of a ratio."""
    sizes = [rows[name].to_numpy(np.float64) for name in sites]
    if mode == "size":
        return sizes
    partner = _partner(rows, rows["step"].to_numpy(np.int64) - 1 if mode == "matched" else 0)
    result = []
    for name, size in zip(sites, sizes, strict=True):
        with np.errstate(divide="ignore", invalid="ignore"):
            if mode == "matched" and name == "rms/carry" and "matched_growth" in rows:
                result.append(np.log(rows["matched_growth"].to_numpy(np.float64)))
                continue
            reference = np.where(partner >= 0, size[partner], np.nan)
            result.append(np.where((size > 0) & (reference > 0), np.log(size / reference), np.nan))
    return result


def _partner(rows: pd.DataFrame, shift: Ints | int) -> Ints:
    """Place of the row that holds step 1 of the anchor t + `shift` of the same prompt; -1 without one."""
    prompt = prompt_codes(rows["prompt"])[0]
    anchor = rows["anchor"].to_numpy(np.int64)
    wanted = anchor + shift
    width = int(max(wanted.max(initial=0), anchor.max(initial=0))) + 1
    first = np.flatnonzero(rows["step"].to_numpy() == 1)
    place = np.full(width * (int(prompt.max(initial=0)) + 1), -1)
    place[prompt[first] * width + anchor[first]] = first
    return np.where(wanted >= 0, place[prompt * width + wanted], -1)


def _over_prompts(
    label: str,
    rows: pd.DataFrame,
    axes: Sequence[str],
    sums: dict[str, tuple[str, float]],
    intervals: Callable[[Floats], stats.Intervals],
) -> pd.DataFrame:
    """Per value of `axes` and quantity: a prompt's sum over its positions, then the mean over prompts."""
    prompt, names = prompt_codes(rows["prompt"])
    place, keys = pd.factorize(pd.MultiIndex.from_frame(rows[list(axes)].astype({"region": str})), sort=True)
    present = {name: where for name, where in sums.items() if where[0] in rows and rows[where[0]].notna().any()}
    values = np.full((len(names), len(keys), len(present)), np.nan)
    positions = np.zeros(len(keys))
    np.add.at(positions, place, rows["positions"].to_numpy(np.float64))
    for number, (column, scale) in enumerate(present.values()):
        means = divided(rows[column].to_numpy(np.float64), rows["positions"].to_numpy(np.float64))
        values[prompt, place, number] = scale * means
    axis = {"key": range(len(keys)), "quantity": list(present)}
    frame = tidy(label, intervals(values), axis, positions[:, None], "positions", len(names))
    for number, name in enumerate(axes):
        frame[name] = [keys[key][number] for key in frame["key"]]
    return frame.drop(columns="key")


def _same(one: pd.DataFrame, other: pd.DataFrame) -> bool:
    return len(one) == len(other) and bool(
        (one["boundary"].to_numpy() == other["boundary"].to_numpy()).all()
        and np.array_equal(one["mean"], other["mean"], equal_nan=True)
    )
