"""The headline figures of a run in a form that can be compared: what each is, and its parts per prompt."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from driftscope import stats
from driftscope.compare.costs import cost_samples
from driftscope.compare.quantity import Quantity, Sample
from driftscope.findings.noise_sums import noise_sums
from driftscope.runs.run import Run
from driftscope.runs.summary import CLEAN, FIGURE_COLUMNS, FeedFigures, feed_figures
from driftscope.stats.contrasts import log_half_point, relative
from driftscope.stats.intervals import Floats


def common_depth(runs: Sequence[Run]) -> int:
    """Steps that every run holds."""
    return min(int(run.table("anchors", CLEAN, columns=["step"])["step"].max()) for run in runs)


def noise_level(name: str) -> float | None:
    """The alpha of a quantity `noise_{alpha}`, None for another one."""
    try:
        return float(name.removeprefix("noise_")) if name.startswith("noise_") else None
    except ValueError:
        return None


def samples(run: Run, prompts: Sequence[str], depth: int) -> dict[str, Sample]:
    """By name; what was not measured is absent."""
    anchors, heads = (_clean(run, table, prompts, depth) for table in ("anchors", "heads"))
    drafted = anchors[anchors["feed"] == "drafted"]
    figures = feed_figures(drafted, heads[heads["feed"] == "drafted"])
    found = cost_samples(run, prompts, depth)
    if figures is not None:
        found += _drift(figures, prompts, depth)
        found += _acceptance(figures, prompts)
        found += _served(drafted, prompts, depth)
    found += _agreement(anchors[anchors["feed"] == "text"], prompts, depth)
    found += _noise(run, prompts)
    return {sample.quantity.name: sample for sample in found}


def _clean(run: Run, table: str, prompts: Sequence[str], depth: int) -> pd.DataFrame:
    rows = run.table(table, CLEAN, columns=(*FIGURE_COLUMNS, "match") if table == "anchors" else None)
    return rows[(rows["variant"] == CLEAN) & (rows["step"] <= depth) & rows["prompt"].isin(prompts)]


def _drift(figures: FeedFigures, prompts: Sequence[str], depth: int) -> list[Sample]:
    """Means over prompts."""
    means = figures.means
    at = f"at step {depth}"
    own = means.get("excess/self_generated")
    sink = means.get("mass/sink")
    columns: list[tuple[Quantity, Floats | None]] = [
        (
            Quantity("growth", "norm growth", f"norm growth {at}", "x", "log", "lower", True),
            _last(means.get("log_growth")),
        ),
        (
            Quantity("matched_growth", "matched growth", f"matched growth {at}", "x", "log", "lower"),
            _last(means.get("log_matched_growth")),
        ),
        (
            Quantity("displacement", "displacement", f"displacement {at}", "share", "plain", "lower", True),
            _last(means.get("displacement")),
        ),
        (
            Quantity(
                "self_excess_slope",
                "self excess slope",
                "slope of the self-generated excess",
                "share a step",
                "plain",
                "lower",
                True,
            ),
            None if own is None or depth < 3 else stats.slope(own),
        ),
        (Quantity("self_excess", "self excess", f"self-generated excess {at}", "share", "plain", "lower"), _last(own)),
        (
            Quantity("sink_change", "sink change", f"change of the sink's mass {at}", "share"),
            None if sink is None else sink[:, -1] - sink[:, 0],
        ),
    ]
    return [
        Sample(quantity, (_placed(values, figures, prompts), np.ones(len(prompts))))
        for quantity, values in columns
        if values is not None and np.isfinite(values).any()
    ]


def _acceptance(figures: FeedFigures, prompts: Sequence[str]) -> list[Sample]:
    """Ratios of sums over anchors outside loops."""
    accepted, reached, anchors = figures.accepted, figures.reached, figures.anchors
    columns = [
        (
            Quantity("anchor_mean", "anchor mean", "accepted length, anchor mean", "tokens", better="higher"),
            accepted.sum(1),
            anchors[:, 0],
        ),
        (
            Quantity("acceptance_1", "acceptance, step 1", "acceptance at step 1", "share", better="higher"),
            accepted[:, 0],
            anchors[:, 0],
        ),
        (
            Quantity(
                "acceptance_later",
                "acceptance, later",
                "conditional acceptance from step 2 on",
                "share",
                better="higher",
            ),
            accepted[:, 1:].sum(1),
            reached[:, 1:].sum(1),
        ),
    ]
    return [
        Sample(quantity, (_placed(numerator, figures, prompts, 0.0), _placed(denominator, figures, prompts, 0.0)))
        for quantity, numerator, denominator in columns
        if denominator.sum() >= stats.MIN_DENOMINATOR and np.isfinite(numerator).all()
    ]


def _served(rows: pd.DataFrame, prompts: Sequence[str], depth: int) -> list[Sample]:
    """Accepted tokens over the rounds of the served walk, loops kept."""
    if rows["accepted"].isna().any():
        return []
    length = rows.groupby([rows["prompt"].astype(str), "anchor"], sort=True)["accepted"].sum()
    total, rounds = np.full((2, len(prompts)), np.nan)
    for place, prompt in enumerate(prompts):
        if prompt not in length.index.levels[0]:
            continue
        counts = length.loc[prompt]
        if (np.diff(counts.index.to_numpy()) != 1).any():
            return []
        walk = stats.served_walk(counts.to_numpy(), depth)
        total[place], rounds[place] = walk.total, walk.rounds
    return [
        Sample(
            Quantity(
                "served",
                "served length",
                f"served length at {depth} drafted tokens",
                "tokens",
                better="higher",
                key=True,
            ),
            (total, rounds),
        )
    ]


def _agreement(rows: pd.DataFrame, prompts: Sequence[str], depth: int) -> list[Sample]:
    """Text-fed agreement at the last step over that at step 1."""
    rows = rows[~rows["loop"] & rows["match"].notna()]
    if rows.empty or depth < 2:
        return []
    by_step = rows["match"].astype(float).groupby([rows["prompt"].astype(str), rows["step"]])
    matches, anchors = (getattr(by_step, name)().unstack().reindex(prompts) for name in ("sum", "size"))
    if 1 not in matches or depth not in matches or not matches[1].sum():
        return []
    parts = tuple(
        table[step].to_numpy(np.float64)
        for table, step in ((matches, depth), (anchors, depth), (matches, 1), (anchors, 1))
    )
    label = f"text-fed agreement kept at step {depth}"
    return [
        Sample(Quantity("agreement_kept", "agreement kept", label, "share", better="higher", key=True), parts, relative)
    ]


def _noise(run: Run, prompts: Sequence[str]) -> list[Sample]:
    """Accepted length kept under noise on the state, and the alpha at which half is lost."""
    noise = noise_sums(run, prompts)
    if noise is None:
        return []
    found = []
    for alpha, parts in noise.levels.items():
        short, label = f"noise {alpha:g} kept", f"accepted length kept under state noise {alpha:g}"
        quantity = Quantity(f"noise_{alpha:g}", short, label, "share", better="higher")
        found.append(Sample(quantity, (*parts, *noise.reference), relative))
    half = Quantity(
        "noise_half_point", "noise half-point", "state noise that costs half the length", "alpha", "log", "higher", True
    )
    return [*found, Sample(half, noise.parts, log_half_point(list(noise.levels)))]


def _last(values: Floats | None) -> Floats | None:
    return None if values is None else values[:, -1]


def _placed(values: Floats, figures: FeedFigures, prompts: Sequence[str], missing: float = np.nan) -> Floats:
    """`values` in the order of `prompts`; a prompt without default anchors has `missing`."""
    return pd.Series(values, index=figures.prompts).reindex(prompts).fillna(missing).to_numpy(np.float64)
