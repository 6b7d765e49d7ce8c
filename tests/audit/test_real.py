"""The audit on the example drafters and their real target: sound ones hold, twins that are broken are named.

Few short prompts, and for each twin only the switches of its fault and of the faults that look like it: an audit with all
hypotheses takes half a minute, and these take five seconds each. They show that every class of fault is found from the real
pair on; that no other hypothesis takes its place, and that every drafter holds, is in test_nightly.py, with all hypotheses,
every fault and every drafter.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from benchmarks.twins import BY_NAME, broken, fits
from driftscope.audit import audit_captures, short_audit
from driftscope.audit.batches import Material, prepare
from driftscope.audit.decide import Limits
from driftscope.audit.hypotheses import TargetFacts
from driftscope.audit.run import facts, plain_boundaries
from driftscope.audit.setting import Setting
from driftscope.captures.capture import Capture, capture
from driftscope.chain.pair import Pair, load_pair
from driftscope.drafter import build_drafter
from driftscope.target.model import Target
from driftscope.target.prompts import load_prompts, tokenize_prompts
from tests.example_pair import BY_FOLDER, CHECKPOINTS, real_target

pytestmark = [pytest.mark.real, pytest.mark.slow]
PROMPTS, NEW_TOKENS, ANCHORS = 18, 36, 6
FIRST_STEP = {"aux_boundaries", "norms before fc", "embed_first", "rope.layout"}
LATER_STEPS = {"carry", "position_increment", "draft_kv"}
PLANTED = (
    ("post-norm", ("aux order",), FIRST_STEP),
    ("eagle3.1", ("rope layout",), {"rope.layout", "rope.theta", "embed_first", "carry"}),
    ("eagle3.1", ("fc_norm left out",), {"norms before fc", "embed_first", "residual", "rope.layout"}),
    ("eagle3", ("random head",), {"vocab_map", "head", "final_norm", "embed_first"}),
    ("eagle3", ("state first",), FIRST_STEP),
    ("fc-norm", ("draft rows",), LATER_STEPS),
    ("eagle3.1", ("fc_norm left out", "carry"), {"norms before fc", "carry", "position_increment"}),
    ("eagle3", ("d2t of another run", "aux order"), {"vocab_map", "aux_boundaries", "head"}),
)
"""Drafter, faults, and the switches that are tried: one twin a class, the classes of the pairs and of the short audit aside."""


@cache
def target() -> Target:
    return real_target()


@cache
def pair(folder: str) -> Pair:
    path: Path = BY_FOLDER.get(folder, CHECKPOINTS[0])
    if not path.exists():
        pytest.skip(f"no checkpoint at {path}")
    return load_pair(path, target())


@cache
def records() -> tuple[Capture, ...]:
    """Captures of the shortest prompts, with what the neighbours of the declared boundaries are."""
    known: TargetFacts = facts(target())
    sound = pair("eagle3.1")
    boundaries = plain_boundaries(Setting(sound.config, sound.checkpoint.weights), known)
    kept, _ = tokenize_prompts(load_prompts(None), target().tokenizer, max_tokens=400)
    short = sorted(kept, key=lambda prompt: len(prompt.token_ids))[:PROMPTS]
    return tuple(capture(target(), short, max_new_tokens=NEW_TOKENS, boundaries=sorted(boundaries)))


@cache
def material() -> Material:
    return prepare(target(), records(), anchors=ANCHORS)


def twin(sound: Pair, names: tuple[str, ...]) -> Pair:
    config, weights = broken(names, sound.config, sound.checkpoint.weights, sound.target.head_weight.detach())
    made = build_drafter(
        config, weights, target_embedding=sound.target.embedding_weight, target_head=sound.target.head_weight
    )
    return Pair(replace(sound.checkpoint, config=config, weights=weights), config, sound.target, made)


def test_a_sound_drafter_is_run_as_it_was_trained():
    found = audit_captures(pair("eagle3.1"), records(), material=material())
    assert found.outcome == "holds", found.verdict
    assert found.exit_code == 0
    assert sum(row.status == "worse" for row in found.rows) > 10


@pytest.mark.parametrize(("folder", "names", "switches"), PLANTED, ids=[" and ".join(names) for _, names, _ in PLANTED])
def test_twins_are_named(folder, names, switches):
    sound, wanted = pair(folder), [BY_NAME[name] for name in names]
    assert all(fits(fault, sound.config) for fault in wanted)
    limits = Limits(rounds=len(names), flips=1999)
    found = audit_captures(twin(sound, names), records(), material=material(), switches=switches, limits=limits)
    assert found.outcome == "misconfigured", found.verdict
    assert {row.switch for row in found.rows} == switches
    named = {(fault.finding.code, fault.switch) for fault in found.faults}
    assert named == {(fault.code, fault.switch) for fault in wanted}, found.verdict


@pytest.mark.parametrize("folder", BY_FOLDER)
def test_the_short_audit_is_silent_on_a_sound_drafter(folder):
    found = short_audit(pair(folder), records())
    assert found.warnings == ()
    assert found.rows, found.reason


def test_the_short_audit_names_a_fault():
    (warning,) = short_audit(twin(pair("eagle3.1"), ("carry",)), records()).warnings
    assert "DS201" in warning
