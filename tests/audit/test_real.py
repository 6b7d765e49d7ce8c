"""The audit on the example drafters and their real target: sound ones hold, twins that are broken in one way are named."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from benchmarks.twins import BY_NAME, broken, fits
from driftscope.audit import audit_captures, short_audit
from driftscope.audit.run import Recapture, take_captures
from driftscope.captures import Capture
from driftscope.drafter import build_drafter
from driftscope.pair import Pair, load_pair
from driftscope.progress import NullProgress
from driftscope.target import Target, load_target
from tests.test_real_pair import CHECKPOINTS, TARGET

pytestmark = [pytest.mark.real, pytest.mark.slow]
BY_FOLDER = {path.name: path for path in CHECKPOINTS}
SOUND = ("eagle3", "eagle3.1")
PLANTED = (
    ("eagle3.1", "carry"),
    ("post-norm", "aux order"),
    ("fc-norm", "d2t of another run"),
    ("eagle3.1", "rope layout"),
    ("eagle3.1", "fc_norm left out"),
    ("eagle3", "random head"),
    ("eagle3", "state first"),
)
"""One twin a class; benchmarks/audit_matrix.py has every fault on every drafter."""


@cache
def target() -> Target:
    if not (TARGET / "config.json").is_file():
        pytest.skip(f"no target at {TARGET}: python examples/smollm2/target.py makes it")
    return load_target(TARGET, device="cpu")


@cache
def pair(path: Path) -> Pair:
    if not path.exists():
        pytest.skip(f"no checkpoint at {path}")
    return load_pair(path, target())


@pytest.fixture(scope="module")
def records(tmp_path_factory) -> tuple[list[Capture], Recapture]:
    first = next((path for path in CHECKPOINTS if path.exists()), None)
    if first is None:
        pytest.skip(f"no checkpoint at {CHECKPOINTS[0]}")
    return take_captures(pair(first), None, 24, 64, tmp_path_factory.mktemp("cache"), NullProgress())


def twin(sound: Pair, name: str) -> Pair:
    config, weights = broken((name,), sound.config, sound.checkpoint.weights, sound.target.head_weight.detach())
    made = build_drafter(
        config, weights, target_embedding=sound.target.embedding_weight, target_head=sound.target.head_weight
    )
    return Pair(replace(sound.checkpoint, config=config, weights=weights), config, sound.target, made)


@pytest.mark.parametrize("folder", SOUND)
def test_the_drafters_are_run_as_they_were_trained(folder, records):
    path = BY_FOLDER[folder]
    captures, again = records
    found = audit_captures(pair(path), captures, recapture=again)
    assert found.outcome == "holds", found.verdict
    assert found.exit_code == 0


@pytest.mark.parametrize(("folder", "name"), PLANTED)
def test_twins_are_named(folder, name, records):
    sound, wanted = pair(BY_FOLDER[folder]), BY_NAME[name]
    assert fits(wanted, sound.config)
    captures, again = records
    found = audit_captures(twin(sound, name), captures, recapture=again)
    assert found.outcome == "misconfigured", found.verdict
    assert (found.faults[0].finding.code, found.faults[0].switch) == (wanted.code, wanted.switch)


def test_the_short_audit_agrees(records):
    path = BY_FOLDER["eagle3.1"]
    captures, _ = records
    assert short_audit(pair(path), captures).warnings == ()
    (warning,) = short_audit(twin(pair(path), "carry"), captures).warnings
    assert "DS201" in warning
