"""Probing a folder of captures instead of prompts: its texts, its sinks, and the ends of its target."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from driftscope.captures.capture import MIN_ANCHORS, long_enough
from driftscope.captures.conditions import Source
from driftscope.captures.folder import CaptureFolder
from driftscope.chain.drafter_inputs import needed_boundaries
from driftscope.chain.pair import Pair
from driftscope.errors import DriftscopeError, PromptError
from driftscope.probes import ConditionProbe, Probe
from driftscope.progress import ProgressReport
from driftscope.target.ends import TargetEnds, load_target_ends
from driftscope.target.model import Target

NOT_GREEDY = "acceptance is not measured: the captured texts are not confirmed as the target's greedy ones"
"""Said where a run has no acceptance."""


def ends_of(captured: CaptureFolder, target: str | Path | Target | None, **places: Any) -> Target:
    """The target of a folder: of the one that is named, else of the one in its index, only the ends are loaded.

    It has the fingerprint of the whole target where the folder records one. Raises DriftscopeError for another target.
    """
    loaded = target if isinstance(target, Target) else load_target_ends(target or captured.target["name"], **places)
    captured.check_target(loaded)
    if isinstance(loaded, TargetEnds):
        loaded.recorded_as(captured.target.get("fingerprint"))
    return loaded


def check_probes(probes: Sequence[Probe]) -> None:
    """Raises DriftscopeError for a probe that would have the target continue texts of its own."""
    asking = [item.name for item in probes if isinstance(item, ConditionProbe)]
    if asking:
        raise DriftscopeError(
            f"probe {', '.join(asking)} asks the target for texts of its own, which a capture does not hold; leave it out of"
            " --probes, or probe with the whole target"
        )


def captured_sources(
    captured: CaptureFolder, pair: Pair, *, horizon: int, extra: set[int], progress: ProgressReport
) -> tuple[list[Source], dict[str, int]]:
    """The texts to probe and how many were left out, by reason.

    Where most texts are confirmed as greedy, the others are left out; where they are not, all are kept and acceptance is
    not measured.
    """
    config, n = pair.config, pair.target.num_layers
    boundaries = sorted({*needed_boundaries(config, n), *extra})
    if config.feature_source == "final" and config.final_feature_normed and not all(t.final for t in captured.texts):
        raise DriftscopeError(
            f"--capture {captured.folder} holds no final states, which this drafter reads; capture with boundary {n} or the"
            " state after the final norm"
        )
    sources = captured.sources(boundaries)
    usable = [source for source in sources if long_enough(source.capture, horizon)]
    if not usable:
        raise PromptError(
            f"all {len(sources)} answers are shorter than horizon {horizon} + {MIN_ANCHORS} tokens; capture longer ones or"
            " choose a smaller --depth and --horizon"
        )
    counts = {**captured.skipped, "short_continuation": len(sources) - len(usable)}
    if captured.greedy:
        kept = [source for source in usable if source.capture.greedy]
        counts["not_greedy"] = len(usable) - len(kept)
        usable = kept or usable
    if not all(source.capture.greedy for source in usable):
        progress.message(NOT_GREEDY + confirmation(captured))
    told = {name.replace("_", " "): count for name, count in counts.items() if count}
    if told:
        progress.message("texts left out: " + ", ".join(f"{count} {name}" for name, count in told.items()))
    return usable, counts


def confirmation(captured: CaptureFolder) -> str:
    """In brackets, how much of the texts the final states predict."""
    shares = [text.confirmed for text in captured.texts if text.confirmed is not None]
    if not shares:
        return " (the capture holds no final states)"
    return f" (its final states predict {sum(shares) / len(shares):.0%} of them)"


def captured_sinks(captured: CaptureFolder, sink: str | Sequence[int], progress: ProgressReport) -> str | Sequence[int]:
    """What `choose_sinks` is to use: the folder's sinks where it has some, position 0 where nothing is known."""
    if sink != "auto":
        return sink
    if captured.sinks is not None:
        return captured.sinks
    progress.message("sink: position 0 is taken for the target's sink, as its attention was not captured (--sink)")
    return (0,)


def about(captured: CaptureFolder, sources: Sequence[Source]) -> dict[str, Any]:
    """What the settings of a run say of its captures."""
    return {
        "format": captured.source.get("format"),
        "greedy": all(source.capture.greedy for source in sources),
        "sinks": "captured" if captured.sinks is not None else "assumed",
        "checks": list(captured.source.get("checks", ())),
    }
