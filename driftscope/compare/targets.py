"""One drafter under several targets: is it still the target that it was trained for?

The texts differ, because each target writes its own, but the prompts are the same: their features are compared position by
position, and step 1, which reads real features alone, is compared prompt by prompt. Drift cannot explain a fall there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from driftscope import stats
from driftscope.compare.captures import CompareError
from driftscope.findings.withheld import withheld
from driftscope.findings.words import plain
from driftscope.runs.naming import short_name
from driftscope.runs.run import Run
from driftscope.runs.summary import CLEAN
from driftscope.stats.intervals import MIN_PROMPTS, Interval

KEEP, ADAPT = 0.95, 0.7
"""Share of the agreement at step 1 under the first target that must be kept to go on as it is, and to be worth adapting: of a
demonstration pair whose target was moved by rank-4 deltas of growing size, 1.02, .85, .76 and .59 were kept."""
_FLOOR = 1e-3
"""Probability below which a token costs no more, as for one outside the draft vocabulary."""
Advice = Literal["keep", "adapt", "retrain", "cannot tell"]


@dataclass(frozen=True)
class OnTarget:
    """The drafter under one of the targets. Intervals are over prompts; those of the first target against itself are None."""

    target: str
    folder: str
    agreement: Interval | None
    """Share of anchors at which the top-1 token of step 1 is the text's, fed from the text, loops left out."""
    loss: Interval | None
    """Nats on the text's token at step 1; None where probabilities were not recorded."""
    kept: Interval | None = None
    """Agreement over that under the first target."""
    loss_rise: Interval | None = None
    """Nats more than under the first target."""
    rms: dict[int, Interval] | None = None
    """Boundary -> RMS of the target's state on the prompt's rows over the first target's."""
    share: dict[int, Interval] | None = None
    """Aux feature -> share of the fused input, less that under the first target."""
    advice: Advice = "keep"
    sentence: str = ""

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def same_drafter_other_targets(runs: Sequence[Run]) -> bool:
    """Whether the runs are of one checkpoint, run alike, under targets that differ in their weights."""
    one = {(run.info.checkpoint.sha256, str(sorted(run.info.checkpoint.switches.items(), key=str))) for run in runs}
    return len(runs) > 1 and len(one) == 1 and len({run.info.target.fingerprint for run in runs}) > 1


def compare_targets(runs: Sequence[Run | str | Path], *, resamples: int = stats.RESAMPLES) -> list[OnTarget]:
    """Each target against the first, which should be the one that the drafter was trained for.

    Raises CompareError for runs of several checkpoints or without a common prompt, RunError for a folder that is no run.
    """
    opened = [run if isinstance(run, Run) else Run.open(run) for run in runs]
    if not same_drafter_other_targets(opened):
        raise CompareError("the runs are not of one checkpoint under several targets; compare others with `compare`")
    first, names = opened[0], _names(opened)
    prompts = _common(opened)
    scores = [_step_one(run).reindex(prompts) for run in opened]
    found = []
    for run, name, score in zip(opened, names, scores, strict=True):
        agreement = stats.ratio_of_sums(score["agree"], score["count"], resamples=resamples).at()
        loss = _mean(score["loss"] / score["count"], resamples) if score["loss"].notna().any() else None
        if run is first:
            found.append(
                OnTarget(name, str(run.folder), agreement, loss, sentence=f"{name} is what the others stand against")
            )
            continue
        own, base = (part["agree"] / part["count"] for part in (score, scores[0]))
        kept = stats.ratio_of_sums(own, base, minimum=1e-9, resamples=resamples).at()
        rise = score["loss"] / score["count"] - scores[0]["loss"] / scores[0]["count"]
        rms = _shifts(first, run, prompts, resamples)
        advice = _advice(run, kept, len(prompts))
        found.append(
            OnTarget(
                name,
                str(run.folder),
                agreement,
                loss,
                kept,
                _mean(rise, resamples) if rise.notna().any() else None,
                rms,
                _shares(first, run, prompts, resamples),
                advice,
                _sentence(run, name, names[0], kept, rms, advice, len(prompts)),
            )
        )
    return found


def _names(runs: Sequence[Run]) -> list[str]:
    names = [short_name(run.info.target.name) for run in runs]
    return names if len(set(names)) == len(names) else [f"{name} ({n})" for n, name in enumerate(names, 1)]


def _common(runs: Sequence[Run]) -> list[str]:
    """Prompts with the same tokens in number in every run, in the order of the first."""
    lengths = [{prompt.id: prompt.prompt_length for prompt in run.info.prompts} for run in runs]
    kept = [name for name, length in lengths[0].items() if all(other.get(name) == length for other in lengths[1:])]
    if not kept:
        raise CompareError("the runs have no prompt in common: probe every target with the same --prompts")
    return kept


def _step_one(run: Run) -> pd.DataFrame:
    """Per prompt: anchors outside loops, how many agree at step 1, and the sum of their losses."""
    columns = ["variant", "feed", "prompt", "anchor", "step", "loop", "match", "prob"]
    rows = run.table("anchors", CLEAN, columns=columns)
    rows = rows[(rows["variant"] == CLEAN) & (rows["feed"] == "text") & (rows["step"] == 1) & ~rows["loop"]]
    if rows.empty:
        raise CompareError(f"{run.folder} holds no text-fed chains: probe it with norms and acceptance among --probes")
    prompt = rows["prompt"].astype(str)
    loss = -np.log(rows["prob"].astype(float).fillna(0.0).clip(lower=_FLOOR)) if "prob" in rows else np.nan
    table = pd.DataFrame({"prompt": prompt, "count": 1, "agree": rows["match"].astype(float), "loss": loss})
    return table.groupby("prompt").sum(min_count=1).astype(float)


def _mean(values: pd.Series, resamples: int) -> Interval | None:
    return stats.bca(values.to_numpy(float)[:, None], resamples=resamples).at(0)


def _shifts(first: Run, run: Run, prompts: Sequence[str], resamples: int) -> dict[int, Interval] | None:
    """RMS on the prompt's rows against the first target's, per boundary, as a geometric mean over prompts."""
    logs = [_per_prompt(part, "layers", "boundary", "sum_log_rms", prompts) for part in (first, run)]
    if any(part is None for part in logs):
        return None
    difference = logs[1] - logs[0]  # type: ignore[operator]
    made = stats.bca(difference.to_numpy(float), resamples=resamples).map(np.exp)
    held = {int(name): made.at(place) for place, name in enumerate(difference.columns)}
    return {name: interval for name, interval in held.items() if interval is not None} or None


def _shares(first: Run, run: Run, prompts: Sequence[str], resamples: int) -> dict[int, Interval] | None:
    shares = [_per_prompt(part, "aux", "index", "sum_share", prompts) for part in (first, run)]
    if any(part is None for part in shares):
        return None
    difference = shares[1] - shares[0]  # type: ignore[operator]
    made = stats.bca(difference.to_numpy(float), resamples=resamples)
    held = {int(name): made.at(place) for place, name in enumerate(difference.columns)}
    return {name: interval for name, interval in held.items() if interval is not None} or None


def _per_prompt(run: Run, table: str, column: str, value: str, prompts: Sequence[str]) -> pd.DataFrame | None:
    """[prompt, column] mean of `value` over the prompt's rows, whose tokens are the same under every target."""
    rows = run.table(table)
    if rows.empty or value not in rows:
        return None
    rows = rows[(rows["region"] == "prompt") & (rows["positions"] > 0)]
    rows = rows.assign(mean=rows[value] / rows["positions"], prompt=rows["prompt"].astype(str))
    return rows.pivot_table(index="prompt", columns=column, values="mean", observed=True).reindex(list(prompts))


def _advice(run: Run, kept: Interval | None, prompts: int) -> Advice:
    if withheld(run.info.trust):
        texts = (run.info.trust or {}).get("texts") or {}
        return "cannot tell" if texts.get("reason") else "retrain"
    if kept is None or kept.low is None or kept.high is None or prompts < MIN_PROMPTS:
        return "cannot tell"
    if kept.low >= KEEP or kept.high >= 1.0:
        return "keep"
    return "adapt" if kept.mean >= ADAPT else "retrain"


def _sentence(
    run: Run, name: str, base: str, kept: Interval | None, rms: dict[int, Interval] | None, advice: Advice, prompts: int
) -> str:
    if advice == "cannot tell":
        why = withheld(run.info.trust) or f"{prompts} prompts have no interval, {MIN_PROMPTS} are needed"
        return f"{name}: cannot tell: {why}"
    if kept is None:
        return f"{name}: {advice}: {withheld(run.info.trust)}"
    ends = "" if kept.low is None or kept.high is None else f" (95% {plain(kept.low)} to {plain(kept.high)})"
    seen = f"at step 1, where nothing can have drifted, it keeps {plain(kept.mean)}{ends} of its agreement under {base}"
    if advice == "keep":
        return f"{name}: keep the drafter: {seen}"
    moved = max(rms or {}, key=lambda b: abs(math.log((rms or {})[b].mean)), default=None)
    shifted = (
        ""
        if moved is None or rms is None
        else f"; its features moved most at boundary {moved} (RMS x{plain(rms[moved].mean)})"
    )
    what = "adapt it by training on" if advice == "adapt" else "retrain it for"
    return f"{name} is not the target that it was trained for: {seen}{shifted}; {what} {name}"
