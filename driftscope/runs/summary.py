"""The figures of a run, as `driftscope probe --json` prints them.

Default figures leave out anchors in repetition loops. Per quantity: mean over a prompt's anchors, then mean over
prompts, with an interval that resamples prompts. RMS ratios are averaged as logs. Acceptance is a ratio of sums over
prompts. Only the served walk uses every anchor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal
from weakref import WeakKeyDictionary

import numpy as np
import pandas as pd

from driftscope import stats
from driftscope.errors import RunError
from driftscope.runs.prompt_sums import Ints, PromptCells, chain_order, chains, check_filled, prompt_codes
from driftscope.runs.schema import DISJOINT_BUCKETS, SCHEMA_VERSION
from driftscope.stats.intervals import Floats

if TYPE_CHECKING:
    from driftscope.runs.folder import RunFolder

CLEAN = "clean"
"""The probe name and the variant of the chains that ran without any change."""
FIGURE_COLUMNS = (
    *("variant", "feed", "prompt", "anchor", "step", "loop", "accepted"),
    *("rms/carry", "matched_growth", "entropy", "mass/", "excess/"),
)
"""Of `anchors`: what `feed_figures` reads."""
CLEAN_COLUMNS = (*FIGURE_COLUMNS, "near_tie", "match", "rank")
"""What findings ask as well. Read at once: a run has many files, and each is opened again for a further column."""
HEAD_COLUMNS = ("prompt", "step", "layer", "head", "anchors", "excess/")
"""Of `heads`: what `feed_figures` reads."""
_MASS_FIGURES = ("sink", "prompt", "committed", "drafted", "current", "self_generated", "virtual")


@dataclass(frozen=True)
class FeedFigures:
    """What the summary is made of, for one feed: arrays [prompt, step], prompts in the order of `prompts`."""

    prompts: list[str]
    depth: int
    means: dict[str, Floats]
    """Per-prompt means over anchors: `carry_rms`, `log_growth`, `log_matched_growth`, `entropy`, `displacement`,
    `mass/{bucket}`, `excess/{bucket}`. A quantity that was not measured is absent."""
    anchors: Floats
    reached: Floats
    """NaN, as `accepted`, where the text is not confirmed as the target's."""
    accepted: Floats
    most_displacement: Floats | None = None
    """`stats.most_displacement`: what the early end of an onset's spread rests on."""


_figures: WeakKeyDictionary[RunFolder, dict[tuple[str, int | None], tuple[Any, FeedFigures | None]]] = (
    WeakKeyDictionary()
)


def summarise(run: RunFolder, depth: int | None = None, *, resamples: int = stats.RESAMPLES) -> dict[str, Any]:
    """Steps 1..depth of the clean variant. Before the first clean shard the steps are empty.

    Args:
        run: the run.
        depth: steps; None is all that the run holds.
        resamples: of prompts, for the intervals.

    Returns:
        What `--json` holds of the run; see `onsets` for the quantities behind the onsets.

    Raises:
        RunError: the run holds fewer steps.
    """
    info = run.info.model_dump(mode="json")
    steps: dict[str, list[dict[str, Any]]] = {}
    found: dict[str, stats.Onset] = {}
    spreads: dict[str, stats.Spread] = {}
    lengths: dict[str, Any] = {}
    held = run.table("anchors", CLEAN, columns=CLEAN_COLUMNS)["step"]
    if len(held) and depth is not None and depth > held.max():
        raise RunError(f"run {run.folder} holds {held.max()} steps, {depth} asked: probe again with --depth")
    for feed in ("drafted", "text"):
        figures = clean_figures(run, feed, depth)
        steps[feed] = [] if figures is None else _steps(figures, resamples)
        if figures is not None and feed == "drafted":
            found = onsets(figures, resamples=resamples)
            spreads = onset_spreads(figures, found, resamples=resamples)
            rows = clean_rows(run, feed, ("accepted",))
            lengths = acceptance_lengths(rows, figures.depth, resamples=resamples)
    return {
        "schema_version": SCHEMA_VERSION,
        "checkpoint": {key: info["checkpoint"][key] for key in ("path", "sha256", "layout", "switches")},
        "target": info["target"],
        "settings": info["settings"],
        "steps": steps["drafted"],
        "text_fed_steps": steps["text"],
        "acceptance_length": lengths,
        "onset": found,
        "onset_spread": spread_content(found, spreads),
        "provenance": info["provenance"],
        **({} if info["trust"] is None else {"trust": info["trust"]}),
    }


def unconfirmed(settings: Mapping[str, Any]) -> str | None:
    """Why a run has no acceptance: its captured texts are not confirmed as the target's greedy ones. None where they are."""
    capture = settings.get("capture")
    if not isinstance(capture, Mapping) or capture.get("greedy", True):
        return None
    return "the captured texts are not confirmed as the target's greedy ones"


def counts(run: RunFolder) -> dict[str, int]:
    """Prompts and anchors of the clean variant, and how many anchors lie in loops or have a near tie in reach."""
    rows = clean_rows(run, "drafted", ("near_tie",))
    rows = rows[rows["step"] == 1]
    return {
        "prompts": int(rows["prompt"].nunique()),
        "anchors": len(rows),
        "loop": int(rows["loop"].sum()),
        "near_tie": int(rows["near_tie"].sum()),
    }


def clean_rows(run: RunFolder, feed: str, columns: Sequence[str] = ()) -> pd.DataFrame:
    """The `anchors` rows of the clean variant and a feed: `prompt`, `anchor`, `step`, `loop` and those of `columns` that
    exist; `rms/` stands for its family."""
    fixed = ("prompt", "anchor", "step", "loop")
    table = run.table("anchors", CLEAN, columns=["variant", "feed", *fixed, *columns])
    kept = (table["variant"] == CLEAN) & (table["feed"] == feed)
    return table[[name for name in table if name not in ("variant", "feed")]][kept]


def clean_figures(run: RunFolder, feed: str, depth: int | None = None) -> FeedFigures | None:
    """`feed_figures` of the clean variant; kept until its shards change."""
    anchors = run.table("anchors", CLEAN, columns=FIGURE_COLUMNS)
    heads = run.table("heads", CLEAN, columns=("variant", "feed", *HEAD_COLUMNS))
    stamp = len(anchors), len(heads)
    known = _figures.setdefault(run, {})
    if (feed, depth) not in known or known[feed, depth][0] != stamp:
        rows = np.flatnonzero((anchors["variant"] == CLEAN) & (anchors["feed"] == feed))
        own = heads[(heads["variant"] == CLEAN) & (heads["feed"] == feed)]
        known[feed, depth] = (stamp, _feed_figures(anchors, rows, own, depth))
    return known[feed, depth][1]


def feed_figures(anchors: pd.DataFrame, heads: pd.DataFrame, depth: int | None = None) -> FeedFigures | None:
    """Per-prompt figures from the `anchors` and `heads` rows of one variant and feed; None without default anchors."""
    return _feed_figures(anchors, np.arange(len(anchors)), heads, depth)


def _feed_figures(anchors: pd.DataFrame, rows: Ints, heads: pd.DataFrame, depth: int | None) -> FeedFigures | None:
    """Of the rows at these places: a copy of all columns would take longer than the sums."""
    keys = anchors[["prompt", "anchor", "step", "loop"]].iloc[rows]
    kept = ~keys["loop"].to_numpy(bool)
    if depth is not None:
        kept &= (keys["step"] <= depth).to_numpy(bool)
    if not kept.any():
        return None
    keys, rows = keys[kept], rows[kept]
    order, first = chain_order(*_chain_keys(keys))
    keys, rows = keys.iloc[order], rows[order]
    cells = PromptCells(keys)
    start = np.flatnonzero(first)[np.cumsum(first) - 1]

    def column(name: str) -> Floats:
        return anchors[name].to_numpy()[rows].astype(np.float64)

    means: dict[str, Floats] = {}
    if "rms/carry" in anchors:
        size = column("rms/carry")
        means["carry_rms"] = cells.mean(size)
        log_size = _log(size)
        means["log_growth"] = cells.mean(log_size - log_size[start])
    if "matched_growth" in anchors:
        means["log_matched_growth"] = cells.mean(_log(column("matched_growth")))
    if "entropy" in anchors:
        means["entropy"] = cells.mean(column("entropy"))
    for name in anchors:
        if str(name).startswith(("mass/", "excess/")):
            means[str(name)] = cells.mean(column(str(name)))
    accepted = column("accepted")
    before = np.concatenate([[1.0], accepted[:-1]])
    told = np.where(cells.count(accepted) > 0, 1.0, np.nan)
    by_head = _head_excess(heads, cells.names, len(cells.steps))
    means["displacement"] = stats.shared_displacement(by_head)
    return FeedFigures(
        prompts=cells.names,
        depth=len(cells.steps),
        means={name: values for name, values in means.items() if np.isfinite(values).any()},
        anchors=cells.size(),
        reached=told * cells.sum(np.where(first, 1.0, before)),
        accepted=told * cells.sum(accepted),
        most_displacement=stats.most_displacement(by_head),
    )


def head_displacement(heads: pd.DataFrame, prompts: list[str], depth: int) -> Floats:
    """Displacement [prompt, step] from the `heads` rows of one variant and feed: the part that the prompts share
    (`stats.shared_displacement`). NaN with a single prompt."""
    return stats.shared_displacement(_head_excess(heads, prompts, depth))


def _head_excess(heads: pd.DataFrame, prompts: list[str], depth: int) -> Floats:
    """[prompt, step, head, bucket] mean excess over anchors; one empty bucket where none was recorded."""
    rows = heads[(heads["step"] <= depth) & heads["prompt"].isin(prompts)]
    columns = [f"excess/{bucket}" for bucket in DISJOINT_BUCKETS if f"excess/{bucket}" in rows]
    shape = len(prompts), depth
    if rows.empty or not columns:
        return np.full((*shape, 1, 1), np.nan)
    step = rows["step"].to_numpy(np.float64)
    if not ((step >= 1) & (step == np.floor(step))).all():
        raise RunError("the table heads holds steps that no chain has: it was changed or damaged; measure again")
    with np.errstate(divide="ignore", invalid="ignore"):
        excess = rows[columns].to_numpy(np.float64) / rows["anchors"].to_numpy(np.float64)[:, None]
    _, head = np.unique(rows[["layer", "head"]].to_numpy(), axis=0, return_inverse=True)
    check_filled(shape[0] * shape[1] * (head.max() + 1), len(rows))
    place = pd.Index(prompts).get_indexer(rows["prompt"].astype(str))
    by_head = np.full((*shape, head.max() + 1, len(columns)), np.nan)
    by_head[place, step.astype(np.int64) - 1, head.ravel()] = excess
    return by_head


PRACTICAL = {
    "norm_up": stats.PRACTICAL_LOG_RMS,
    "sink_down": stats.PRACTICAL_MASS,
    "self_up": stats.PRACTICAL_MASS,
    "displaced": stats.PRACTICAL_MASS,
}
"""How far a quantity must move to count."""
_COLUMNS = {
    "norm_up": "log_growth",
    "sink_down": "mass/sink",
    "self_up": "excess/self_generated",
    "displaced": "displacement",
}


def onsets(
    figures: FeedFigures, *, practical: Mapping[str, float] = PRACTICAL, resamples: int = stats.RESAMPLES
) -> dict[str, stats.Onset]:
    """Steps from which a quantity differs from step 1 to the end (`stats.onset`); one not measured is absent.

    `norm_up`: log RMS of the carry, by 10%. `sink_down`: raw sink mass, by 0.05; "not measurable" where step 1 has
    less than that. `self_up`: excess of the self-generated mass, by 0.05; "not measurable" where the baseline leaves
    it no such room. `displaced`: displacement, by 0.05. `practical` has other sizes; only its keys are looked for.
    """
    return {
        name: stats.onset(moved.differences, size, moved.direction, available=moved.available, resamples=resamples)
        for name, size in practical.items()
        if (moved := _moved(figures, name)) is not None
    }


def onset_spreads(
    figures: FeedFigures,
    found: Mapping[str, stats.Onset],
    *,
    practical: Mapping[str, float] = PRACTICAL,
    resamples: int = stats.RESAMPLES,
) -> dict[str, stats.Spread]:
    """How far each of the onsets `found` is known (`stats.onset_spread`); one that is not measurable is absent."""
    spreads = {
        name: stats.onset_spread(
            moved.differences, practical[name], moved.direction, found=onset, most=moved.most, resamples=resamples
        )
        for name, onset in found.items()
        if name in practical and (moved := _moved(figures, name)) is not None
    }
    return {name: spread for name, spread in spreads.items() if spread is not None}


def spread_content(
    found: Mapping[str, stats.Onset], spreads: Mapping[str, stats.Spread]
) -> dict[str, dict[str, int | str | None]]:
    """Both, ready for JSON: `step` is the onset, `low` and `high` are the ends of its spread."""
    return {
        name: {"step": found[name], "low": spread.low, "high": spread.high}
        for name, spread in spreads.items()
        if name in found
    }


@dataclass(frozen=True)
class _Moved:
    """A quantity behind an onset: `differences[prompt, step]` to step 1, which way it drifts, and how far it could."""

    differences: Floats
    direction: Literal["up", "down"] = "up"
    available: float | None = None
    most: Floats | None = None
    """The differences by an estimator that errs to the other side."""


def _moved(figures: FeedFigures, name: str) -> _Moved | None:
    means = figures.means
    column = _COLUMNS[name]
    if column not in means:
        return None
    values = means[column]
    differences = values - values[:, :1]
    if name == "sink_down":
        return _Moved(differences, "down", _largest_mean(values[:, :1]))
    if name == "self_up" and "mass/self_generated" in means:
        return _Moved(differences, "up", _largest_mean(1.0 - (means["mass/self_generated"] - values)[:, 1:]))
    most = figures.most_displacement if name == "displaced" else None
    return _Moved(differences, most=None if most is None else most - most[:, :1])


def acceptance_lengths(anchors: pd.DataFrame, depth: int, *, resamples: int = stats.RESAMPLES) -> dict[str, Any]:
    """Acceptance lengths at `depth` draft tokens, from the `anchors` rows of one variant, drafted feed.

    `anchor_mean`: over anchors outside loops; `served`: over the rounds of the served walk, loops kept, with its
    standard deviation over rounds; both without bonus token, `served_with_bonus` with it. `served_by_request` weighs
    every prompt alike, however many rounds its text took, as papers do; engines pool rounds. The served figures are absent if
    the anchors of a prompt are not consecutive.
    """
    found = chains(anchors[anchors["step"] <= depth])
    parts = [(found.length[part], found.loop[part]) for part in found.by_prompt()]
    default = [length[~loop] for length, loop in parts if not loop.all()]
    result: dict[str, Any] = {}
    accepted, size = [part.sum() for part in default], [len(part) for part in default]
    _put(result, "anchor_mean", stats.ratio_of_sums(accepted, size, resamples=resamples))
    if not found.consecutive:
        return result
    walks = [stats.served_walk(length, depth) for length, _ in parts]
    total, rounds = [walk.total for walk in walks], [walk.rounds for walk in walks]
    served = stats.ratio_of_sums(total, rounds, resamples=resamples)
    _put(result, "served", served)
    if "served" in result:
        result["served_sd"] = float(np.std(np.concatenate([walk.accepted for walk in walks]), ddof=1))
        _put(result, "served_with_bonus", served.map(lambda length: length + 1.0))
        own = [[walk.total / walk.rounds] for walk in walks if walk.rounds]
        _put(result, "served_by_request", stats.bca(np.array(own), resamples=resamples), 0)
    return result


def _chain_keys(rows: pd.DataFrame) -> tuple[Ints, Ints, Ints]:
    return prompt_codes(rows["prompt"])[0], rows["anchor"].to_numpy(np.int64), rows["step"].to_numpy(np.int64)


def _log(values: Floats) -> Floats:
    """Natural log; NaN for what is not positive."""
    return np.log(values, out=np.full_like(values, np.nan), where=values > 0)


def _largest_mean(values: Floats) -> float | None:
    """The largest over steps of the mean over prompts of `values[prompt, step]`."""
    measured = values[:, np.isfinite(values).any(axis=0)]
    return float(np.nanmean(measured, axis=0).max()) if measured.size else None


def _put(result: dict[str, Any], name: str, intervals: stats.Intervals, *index: int) -> None:
    interval = intervals.at(*index)
    if interval is not None:
        result[name] = interval.to_dict()


def _steps(figures: FeedFigures, resamples: int) -> list[dict[str, Any]]:
    names = list(figures.means)
    stacked = stats.bca(np.stack([figures.means[name] for name in names], axis=-1), resamples=resamples)
    means = {name: stacked[:, place] for place, name in enumerate(names)}
    for name in ("growth", "matched_growth"):
        if f"log_{name}" in means:
            means[name] = means[f"log_{name}"].map(np.exp)
    joint = stats.ratio_of_sums(figures.accepted, figures.anchors, resamples=resamples)
    conditional = stats.ratio_of_sums(figures.accepted, figures.reached, resamples=resamples)
    result = []
    for place in range(figures.depth):
        step: dict[str, Any] = {"step": place + 1}
        for name in ("carry_rms", "growth", "matched_growth", "mass", "excess", "displacement", "entropy"):
            if name in means:
                _put(step, name, means[name], place)
            elif name in ("mass", "excess"):
                group: dict[str, Any] = {}
                for bucket in _MASS_FIGURES:
                    if f"{name}/{bucket}" in means:
                        _put(group, bucket, means[f"{name}/{bucket}"], place)
                if group:
                    step[name] = group
        acceptance: dict[str, Any] = {}
        _put(acceptance, "joint", joint, place)
        acceptance["anchors"] = int(figures.anchors[:, place].sum())
        _put(acceptance, "conditional", conditional, place)
        if np.isfinite(figures.reached[:, place]).any():
            acceptance["conditional_denominator"] = int(np.nansum(figures.reached[:, place]))
        step["acceptance"] = acceptance
        result.append(step)
    return result
