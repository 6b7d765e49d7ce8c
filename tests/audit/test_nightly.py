"""The audit as a user runs it, with all hypotheses: every example drafter holds, every fault that fits it is named.

What each is worth in figures: benchmarks/audit_matrix.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import pytest

from benchmarks.twins import BY_NAME, PAIRS, TWINS, fits, shown
from driftscope.audit import Audit, audit_captures, short_audit
from driftscope.audit.batches import Material, prepare
from driftscope.audit.decide import Limits
from driftscope.audit.run import Recapture, take_captures
from driftscope.captures.capture import Capture
from driftscope.progress import NullProgress
from tests.audit.test_real import pair, target, twin
from tests.example_pair import BY_FOLDER

pytestmark = [pytest.mark.real, pytest.mark.nightly]
PROMPTS, NEW_TOKENS, ANCHORS = 48, 128, 8
FAULTS = [*((fault.name,) for fault in TWINS), *PAIRS]


@cache
def captures() -> tuple[tuple[Capture, ...], Recapture, Material]:
    """All shipped prompts at full length, and what an audit asks of the target."""
    records, again = take_captures(pair(next(iter(BY_FOLDER))), None, PROMPTS, NEW_TOKENS, None, NullProgress())
    records = again([record.prompt_id for record in records], range(target().num_layers + 1))
    held = {record.prompt_id: record for record in records}

    def handed(ids: Sequence[str], boundaries: object = ()) -> list[Capture]:
        return [held[name] for name in ids]

    return tuple(records), handed, prepare(target(), records, anchors=ANCHORS)


def audited(folder: str, names: tuple[str, ...] = ()) -> Audit:
    """The drafter, or its twin with these faults, in as many rounds as there are faults."""
    records, again, material = captures()
    sound = pair(folder)
    limits = Limits(rounds=max(1, len(names)))
    return audit_captures(
        twin(sound, names) if names else sound,
        records,
        recapture=again,
        material=material,
        limits=limits,
        lens=shown(names),
    )


sound = cache(audited)


@pytest.mark.parametrize("folder", BY_FOLDER)
def test_a_sound_drafter_holds(folder: str) -> None:
    found = sound(folder)
    assert (found.outcome, found.exit_code) == ("holds", 0), found.verdict
    assert sum(row.status == "worse" for row in found.rows) > 10


@pytest.mark.parametrize("folder", BY_FOLDER)
def test_the_short_audit_is_silent_on_a_sound_drafter(folder: str) -> None:
    assert short_audit(pair(folder), captures()[0]).warnings == ()


@pytest.mark.parametrize("names", FAULTS, ids=" and ".join)
@pytest.mark.parametrize("folder", BY_FOLDER)
def test_a_fault_is_named_or_costs_nothing_practical(folder: str, names: tuple[str, ...]) -> None:
    """A fault that is not acted on must be listed as slight, or cost less than the audit calls practical. Nothing else may
    be named in its place. Of two faults at once the first named must be one of them."""
    if not all(fits(BY_NAME[name], pair(folder).config) for name in names):
        pytest.skip(f"no case: {folder} has not what this fault breaks")
    found = audited(folder, names)
    wanted = {(BY_NAME[name].code, BY_NAME[name].switch) for name in names}
    named = {(fault.finding.code, fault.switch) for fault in found.faults}
    assert named <= wanted, found.verdict
    if not named:
        slight = any(row.slight and (row.code, row.switch) in wanted for row in found.rows)
        assert slight or not costly(found, sound(folder)), found.verdict


def costly(found: Audit, whole: Audit) -> bool:
    """Whether the drafter is worse than the sound one by what an audit calls practical: at step 1, later, or over all."""
    limits = Limits()
    loss = [ours - theirs for ours, theirs in zip(found.baseline.loss, whole.baseline.loss, strict=True)]
    kept = [theirs - ours for ours, theirs in zip(found.baseline.agreement, whole.baseline.agreement, strict=True)]
    return any(
        sum(loss[part]) >= limits.loss * len(loss[part]) and sum(kept[part]) >= limits.agreement * len(kept[part])
        for part in (slice(0, 1), slice(1, None), slice(None))
    )
