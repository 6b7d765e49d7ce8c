"""What every frame is made with: labels of runs, figures per step, means per prompt and step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from driftscope import stats
from driftscope.findings.verdict import ONSETS
from driftscope.runs.naming import short_name
from driftscope.runs.prompt_sums import PromptCells
from driftscope.runs.run import Run
from driftscope.runs.summary import clean_rows, counts

Runs = Sequence[Run]

_GROUPS = ("mass", "excess")
_FIGURES = ("carry_rms", "growth", "matched_growth", "displacement", "entropy")


def labelled(runs: Runs) -> dict[str, Run]:
    """Runs by a short label: the checkpoint's name, the folder's where two checkpoints share a name."""
    names = [short_name(run.info.checkpoint.path) for run in runs]
    if len(set(names)) < len(names):
        names = [run.folder.resolve().name for run in runs]
    result: dict[str, Run] = {}
    for name, run in zip(names, runs, strict=True):
        label, number = name, 2
        while label in result:
            label, number = f"{name} ({number})", number + 1
        result[label] = run
    return result


def step_figures(runs: Runs, feed: str = "drafted", depth: int | None = None) -> pd.DataFrame:
    """The figures per step of the summaries, long: `quantity` (and `bucket` of `mass` and `excess`, else empty).

    Quantities: carry_rms, growth, matched_growth, displacement, entropy (nats), mass, excess, joint, conditional.
    """
    records: list[dict[str, Any]] = []
    for label, run in labelled(runs).items():
        steps = run.summary(depth)["steps" if feed == "drafted" else "text_fed_steps"]
        prompts = counts(run)["prompts"]
        found = [_flat(step) for step in steps]
        for name in dict.fromkeys(name for figures in found for name in figures):
            for step, figures in zip(steps, found, strict=True):
                conditional = name == ("conditional", "")
                acceptance = step["acceptance"]
                count = "conditional_denominator" if conditional else "anchors"
                records.append(
                    {
                        "run": label,
                        "step": step["step"],
                        "quantity": name[0],
                        "bucket": name[1],
                        **_ends(figures.get(name, {})),
                        "count": acceptance.get(count, 0),
                        "counted": "chains that reached the step" if conditional else "anchors",
                        "prompts": prompts,
                    }
                )
    columns = ["run", "step", "quantity", "bucket", "mean", "low", "high", "count", "counted", "prompts"]
    return pd.DataFrame(records, columns=columns)


def onsets(
    runs: Runs,
    depth: int | None = None,
    found: Sequence[Mapping[str, Any]] | None = None,
    spreads: Sequence[Mapping[str, Mapping[str, Any]]] | None = None,
) -> pd.DataFrame:
    """The onsets that are a step, one row each: `run`, `key` (of `driftscope.findings.verdict.ONSETS`), `name`, `step`, and in
    `low` and `high` its spread over resampled prompts (NaN where there is none, or no end).

    `found` are the onsets of each run where they are not those of the summaries, as under other thresholds, and `spreads` what
    is known of them (`onset_spread` of a summary).
    """
    if found is None:
        summaries = [run.summary(depth) for run in runs]
        found, spreads = [part["onset"] for part in summaries], [part["onset_spread"] for part in summaries]
    records = [
        {"run": label, "key": key, "name": ONSETS[key], "step": start, **_spread(known.get(key, {}))}
        for label, by_key, known in zip(labelled(runs), found, spreads or [{}] * len(found), strict=True)
        for key, start in by_key.items()
        if key in ONSETS and isinstance(start, int)
    ]
    frame = pd.DataFrame(records, columns=["run", "key", "name", "step", "low", "high"])
    return frame.astype({"low": np.float64, "high": np.float64})


def _spread(known: Mapping[str, Any]) -> dict[str, float]:
    return {end: np.nan if known.get(end) is None else float(known[end]) for end in ("low", "high")}


def step_means(runs: Runs, columns: Mapping[str, str], feed: str = "drafted") -> pd.DataFrame:
    """Means of columns of `anchors` per step, with `quantity` = the label that `columns` gives to each of them.

    Mean over a prompt's anchors outside loops, then over prompts. A column that a run lacks has no rows.
    """
    parts = []
    for label, run in labelled(runs).items():
        rows = anchor_rows(run, columns, feed)
        present = [name for name in columns if name in rows and rows[name].notna().any()]
        if not present:
            continue
        cells = PromptCells(rows)
        means = np.stack([cells.mean(rows[name]) for name in present], -1)
        count = np.stack([cells.count(rows[name]) for name in present], -1)
        axes: dict[str, list[Any]] = {"step": cells.steps, "quantity": [columns[name] for name in present]}
        parts.append(tidy(label, stats.bca(means), axes, count.sum(0), "anchors", cells.prompts))
    return joined(parts, "step", "quantity")


def anchor_rows(
    run: Run, columns: Mapping[str, str] | Sequence[str], feed: str, *, loops: bool = False
) -> pd.DataFrame:
    """The clean rows of a feed with those of `columns` that exist (`rms/` is a family); anchors in loops only with `loops`."""
    rows = clean_rows(run, feed, ("accepted", *columns))
    return rows if loops else rows[~rows["loop"]]


def tidy(
    run: str,
    figures: stats.Intervals,
    axes: Mapping[str, Sequence[Any]],
    count: Any,
    counted: str,
    prompts: int,
) -> pd.DataFrame:
    """Figures of shape (axes) as rows, the last axis fastest; `count` has that shape or is broadcast to it."""
    index = pd.MultiIndex.from_product(list(axes.values()), names=list(axes))
    frame = index.to_frame(index=False)
    frame.insert(0, "run", run)
    shape = tuple(len(values) for values in axes.values())
    return frame.assign(
        mean=figures.mean.reshape(-1),
        low=figures.low.reshape(-1),
        high=figures.high.reshape(-1),
        count=np.broadcast_to(count, shape).reshape(-1).astype(np.int64),
        counted=counted,
        prompts=prompts,
    )


def joined(parts: Sequence[pd.DataFrame], *axes: str) -> pd.DataFrame:
    """Frames of several runs below each other; with no part, no rows and the columns of `tidy` with `axes`."""
    if parts:
        return pd.concat(parts, ignore_index=True)
    return pd.DataFrame(columns=["run", *axes, "mean", "low", "high", "count", "counted", "prompts"])


def recorded(records: Sequence[Mapping[str, Any]], axes: Sequence[str], runs: Runs) -> pd.DataFrame:
    """Rows of figures that come as JSON: null ends are NaN, absent denominators are absent, `prompts` is filled in."""
    prompts = {label: counts(run)["prompts"] for label, run in labelled(runs).items()}
    columns = [*axes, "mean", "low", "high"]
    frame = pd.DataFrame(list(records), columns=None if records else columns)
    frame[["mean", "low", "high"]] = frame[["mean", "low", "high"]].astype(np.float64)
    return frame.assign(prompts=frame["run"].map(prompts))


def _flat(step: Mapping[str, Any]) -> dict[tuple[str, str], Mapping[str, Any]]:
    """The intervals of a step of a summary by (quantity, bucket)."""
    figures = {(name, ""): step[name] for name in _FIGURES if name in step}
    figures |= {(name, bucket): value for name in _GROUPS for bucket, value in step.get(name, {}).items()}
    names = ("joint", "conditional")
    return figures | {(name, ""): step["acceptance"][name] for name in names if name in step["acceptance"]}


def _ends(interval: Mapping[str, Any]) -> dict[str, float]:
    values = {name: interval.get(name) for name in ("mean", "low", "high")}
    return {name: np.nan if value is None else float(value) for name, value in values.items()}
