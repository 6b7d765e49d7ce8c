"""From a run and a server's counters to the answer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from driftscope.errors import RunError
from driftscope.from_engines.counters.model import Counters
from driftscope.progress import NullProgress, ProgressReport
from driftscope.runs.run import Run
from driftscope.serving.diagnosis import Diagnosis, Traffic, diagnose
from driftscope.serving.places import Places
from driftscope.serving.reading import DECLARED, Reading, held_readings, walk_of


def compare_engine(
    run: Run | str | Path,
    counters: Counters,
    *,
    traffic: Traffic | None = None,
    walk: bool = True,
    places: Places | None = None,
    progress: ProgressReport | None = None,
) -> Diagnosis:
    """What an engine's counters say of how it runs the drafter of a run.

    Args:
        run: the run, or its folder.
        counters: as `driftscope.from_engines.counters.reading.read_counters` gives them.
        traffic: what the engine answered: other prompts (the default), prompts of the same kinds, or the run's very prompts.
        walk: walk every other reading of the checkpoint too, which loads the pair; else only the run's own is compared.
        places: where checkpoint and target are, where they are not where the run says.
        progress: is told how far it is.

    Returns:
        Which readings agree with the engine, and how far the others are off, in accepted tokens.

    Raises:
        DriftscopeError: one line for whatever the user can mend.
    """
    opened = run if isinstance(run, Run) else Run.open(run)
    report = progress or NullProgress()
    traffic = traffic or Traffic()
    near_ties = near_tie_share(opened)
    traffic = replace(traffic, changed=near_ties)
    horizon = int(opened.info.settings.get("horizon") or 16)
    depth = min(counters.tokens, horizon)
    if traffic.same_prompts:
        counters, traffic = _checked(opened, counters, traffic)
    if not walk:
        return diagnose(counters, [Reading(DECLARED, walks=walk_of(opened))], traffic)
    if opened.info.checkpoint.switches.get("layer_form") == "dflash":
        report.message("readings of a drafter of all steps at once are not walked: only the run's own is compared")
        return diagnose(counters, [Reading(DECLARED, walks=walk_of(opened))], traffic)
    found, whole = held_readings(opened, depth)
    if not whole:
        # Not before it is needed: it takes torch along.
        from driftscope.serving.readings import readings

        found = readings(opened, depth, places=places, progress=report)
    return diagnose(counters, found, traffic)


def _checked(run: Run, counters: Counters, traffic: Traffic) -> tuple[Counters, Traffic]:
    """Counters and traffic of the very prompts: as many answers as the run has prompts, and where they were cut off.

    Raises RunError where the server answered others, or some of them twice.
    """
    lengths = [prompt.text_length - prompt.prompt_length for prompt in run.info.prompts]
    if counters.requests is not None and counters.requests != len(lengths):
        raise RunError(
            f"--same-prompts: the server has answered {counters.requests} requests, the run has {len(lengths)} prompts:"
            " serve each of them once, and take off what was served before (--before)"
        )
    if traffic.max_tokens is not None or counters.generated is None:
        return counters, traffic
    limit = next((m for m in range(1, max(lengths) + 1) if sum(min(n, m) for n in lengths) >= counters.generated), None)
    held = sum(min(length, limit or max(lengths)) for length in lengths)
    if held == counters.generated:
        return counters, replace(traffic, max_tokens=limit)
    note = f"the answers have {counters.generated:,} tokens, the run's texts {sum(lengths):,}: not the same texts throughout"
    return replace(counters, notes=(*counters.notes, note)), traffic


def near_tie_share(run: Run) -> float:
    """Share of a run's positions at which the target is of two minds: another order of summation picks the other token there."""
    try:
        rows = run.table("anchors", "clean", columns=["prompt", "anchor", "step", "near_tie"])
    except RunError:
        return 0.0
    rows = rows[rows["step"] == 1]
    horizon = int(run.info.settings.get("horizon") or 16)
    # An anchor is marked for any near tie in its horizon.
    return float(rows["near_tie"].mean()) / horizon if len(rows) else 0.0
