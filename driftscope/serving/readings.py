"""Every reading of the checkpoint, walked over the run's texts, and kept in the run folder: the next counters cost nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from driftscope.audit.hypotheses import Hypothesis, hypotheses
from driftscope.audit.prefix_faults import PrefixFault, prefix_faults
from driftscope.audit.refusal import check_audited
from driftscope.audit.run import facts
from driftscope.audit.setting import Setting
from driftscope.captures.capture import Capture
from driftscope.chain.drafter_inputs import drafter_text
from driftscope.chain.pair import Pair
from driftscope.errors import CheckpointError, DriftscopeError
from driftscope.progress import ProgressReport
from driftscope.runs.run import Run
from driftscope.serving.places import Places
from driftscope.serving.reading import DECLARED, KV, Reading, held_readings, keep_readings
from driftscope.serving.texts import pair_of, texts_of
from driftscope.stats.walks import PromptWalk, Walks


def readings(
    run: Run, depth: int, *, places: Places | None = None, progress: ProgressReport, anchors: int | None = None
) -> list[Reading]:
    """The declared reading first, then every hypothesis of the audit that an engine could run.

    depth: drafted tokens of a round. Walks that the run folder holds are taken from there. Raises a DriftscopeError where the pair
    cannot be loaded, or is of a kind that is not audited.
    """
    held, whole = held_readings(run, depth)
    if whole:
        return held
    made = _walked(run, depth, places or Places(), progress, anchors, {part.name: part for part in held})
    keep_readings(run, made)
    return made


def _walked(
    run: Run, depth: int, places: Places, progress: ProgressReport, anchors: int | None, held: Mapping[str, Reading]
) -> list[Reading]:
    from driftscope.audit.walking import Walker

    progress.message(f"loading {run.info.checkpoint.path}")
    pair = pair_of(run, places)
    check_audited(pair.config)
    setting = Setting(pair.config, pair.checkpoint.weights)
    target = facts(pair.target, pair.checkpoint.raw_config)
    # What a row is compared with is no switch of an engine; where a chain stands is among its own faults.
    tried = [h for h in hypotheses(setting, target) if h.reach != "labels" and h.switch != "chain_position"]
    new = [h for h in tried if h.name not in held]
    settings = [setting, *(h.apply(setting) for h in new if not h.ruled_out)]
    boundaries = sorted({b for item in settings for b in item.boundaries(target.num_layers)})
    captures = texts_of(run, pair, boundaries, places, progress)
    walker = Walker(
        captures, depth, target.embedding, target.head, pair.target.dtype, pair.drafter.device, anchors=anchors
    )
    setting = walker.cast(setting)
    faults = prefix_faults()
    progress.stage("walking every reading", len(tried) + len(faults) + 1)
    found = [held.get(DECLARED) or Reading(DECLARED, walks=walker.walk(setting))]
    progress.advance(note=DECLARED)
    for hypothesis in tried:
        found.append(held.get(hypothesis.name) or _reading(walker, setting, hypothesis))
        progress.advance(note=hypothesis.name)
    made = _faults(pair, captures, [fault for fault in faults if fault.name not in held], depth, progress)
    return [*found, *(held[fault.name] for fault in faults if fault.name in held), *made]


def _faults(
    pair: Pair, captures: Sequence[Capture], faults: Sequence[PrefixFault], depth: int, progress: ProgressReport
) -> Iterator[Reading]:
    """What an engine gets wrong by itself: the draft KV, and where the steps stand."""
    from driftscope.audit.walked import predict, seen_of

    if not faults:
        return
    drafter = pair.drafter
    texts = [drafter_text(pair.config, record, device=drafter.device, dtype=drafter.dtype) for record in captures]
    seen = [seen_of(drafter, text) for text in texts]
    for fault in faults:
        made = predict(drafter, texts, fault, depth=depth, seen=seen)
        prompts = []
        for record, walk in zip(captures, made.walks, strict=True):
            places = walk.anchors - (record.prompt_length - 1)
            # Where no round started nothing is known, and nothing is asked.
            accepted = np.zeros(int(places[-1]) + 1 if len(places) else 0, dtype=np.int64)
            accepted[places] = walk.accepted
            prompts.append(PromptWalk(record.prompt_id, record.category, record.new_tokens, accepted))
        progress.advance(note=fault.name)
        yield Reading(
            fault.name,
            KV,
            "sound",
            fault.name,
            walks=Walks(depth, tuple(prompts)),
            words=fault.words,
            look_at=fault.look_at,
        )


def _reading(walker: Any, setting: Setting, hypothesis: Hypothesis) -> Reading:
    about = Reading(
        hypothesis.name, hypothesis.switch, hypothesis.declared, hypothesis.alternative, hypothesis.code,
        reason=hypothesis.ruled_out,
    )  # fmt: skip
    if hypothesis.ruled_out:
        return about
    try:
        return replace(about, walks=walker.walk(setting, hypothesis))
    except (CheckpointError, DriftscopeError) as error:
        return replace(about, reason=str(error))
