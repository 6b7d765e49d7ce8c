"""From runs to a comparison."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path

from driftscope import stats
from driftscope.compare import sentences
from driftscope.compare.captures import CompareError, common_prompts
from driftscope.compare.design import Design, design
from driftscope.compare.effects import compare_samples
from driftscope.compare.headline import headline
from driftscope.compare.model import Compared, Comparison
from driftscope.compare.samples import common_depth, noise_level, samples
from driftscope.findings.causes import causes
from driftscope.findings.thresholds import Thresholds
from driftscope.findings.withheld import withheld
from driftscope.runs.naming import short_name
from driftscope.runs.run import Run

_EQUAL = "what a switch does is told only if everything else in the training of the checkpoints was equal; runs do not record it"


def compare(
    runs: Sequence[Run | str | Path],
    *,
    depth: int | None = None,
    thresholds: Thresholds | Path | None = None,
    resamples: int = stats.RESAMPLES,
) -> Comparison:
    """Every headline figure of each run, and paired differences to the first, with intervals over prompts.

    Two runs that differ in one of FC-norm and carry are put in the order without, with. The four of a 2 x 2 also give
    simple effects and interaction. Of a single run it is what `driftscope.findings.causes` says of it.

    Args:
        runs: runs or their folders, the reference first.
        depth: steps, at most and by default as many as every run holds.
        thresholds: as `driftscope.findings.assess` takes them.
        resamples: of prompts, for the intervals.

    Returns:
        The figures, each in its own unit, with 95% intervals.

    Raises:
        CompareError: runs that did not measure the same texts.
        RunError: a folder that is no run.
    """
    opened = [run if isinstance(run, Run) else Run.open(run) for run in runs]
    if not opened:
        raise CompareError("no run to compare: name one or more run folders")
    opened = _in_order(opened)
    names = unique_names(opened)
    prompts, notes = common_prompts(opened, names)
    deepest = common_depth(opened)
    if depth is not None and depth > deepest:
        raise CompareError(f"every run holds {deepest} steps, {depth} asked: probe again with --depth {depth}")
    held = [int(run.info.settings.get("depth", deepest)) for run in opened]
    if depth is None and max(held) > deepest:
        notes.append(f"compared up to step {deepest}, which every run has; the deepest has {max(held)}")
    depth = depth or deepest
    found = design(opened)
    by_run = [samples(run, prompts, depth) for run in opened]
    compared = _noise_told(compare_samples(by_run, names, found, resamples), len(names))
    compared = [_told(part, found, names) for part in compared if part.values]
    doubts = [f"{name}: {why}" for name, run in zip(names, opened, strict=True) if (why := withheld(run.info.trust))]
    notes += [f"no verdict on {doubt}" for doubt in doubts[1:]]
    if doubts:
        answer = f"Nothing can be told: no verdict on {doubts[0]}."
    elif found.kind == "single":
        answer = causes(opened[0], thresholds, depth=depth).text
    else:
        answer = headline(found, compared, names)
        if found.kind in ("factorial", "one switch"):
            notes.append(_EQUAL)
    return Comparison(
        tuple(names),
        tuple(str(run.folder) for run in opened),
        found,
        short_name(opened[0].info.target.name),
        len(prompts),
        depth,
        answer,
        tuple(compared),
        (*notes, *found.notes),
    )


def unique_names(runs: Sequence[Run]) -> list[str]:
    """Short names of the checkpoints; of the run folders where those are alike; numbered where those are too."""
    for names in ([short_name(run.info.checkpoint.path) for run in runs], [short_name(run.folder) for run in runs]):
        if len(set(names)) == len(names):
            return names
    return [f"{name} ({number})" for number, name in enumerate(names, 1)]


def _in_order(runs: list[Run]) -> list[Run]:
    found = design(runs)
    if found.kind == "factorial":
        return [runs[place] for place in found.order]
    if found.kind == "one switch":
        return [runs[place] for place in found.order]
    return runs


def _noise_told(compared: list[Compared], runs: int) -> list[Compared]:
    """Where some run lacks a half-point, the length kept at the noise level nearest to .5 answers in its place."""
    half = next((part for part in compared if part.quantity.name == "noise_half_point"), None)
    if half is None or len(half.values) == runs:
        return compared
    levels = {name: alpha for part in compared if (alpha := noise_level(name := part.quantity.name)) is not None}
    nearest = min(levels, key=lambda name: abs(math.log(levels[name] / 0.5)), default="")
    keys = {nearest: True, half.quantity.name: False}
    return [
        dataclasses.replace(
            part, quantity=dataclasses.replace(part.quantity, key=keys.get(part.quantity.name, part.quantity.key))
        )
        for part in compared
    ]


def _told(part: Compared, found: Design, names: Sequence[str]) -> Compared:
    if found.kind == "factorial":
        return dataclasses.replace(part, sentence=sentences.factorial(part))
    if found.kind == "one switch" and found.repeated:
        effect = part.effect(found.factor)
        return (
            part
            if effect is None
            else dataclasses.replace(part, sentence=sentences.one_switch(part, found.factor, effect))
        )
    if found.kind == "one switch" and names[1] in part.differences:
        return dataclasses.replace(part, sentence=sentences.one_switch(part, found.factor, part.differences[names[1]]))
    return part
