"""States that no forward pass can have made are named before the run."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from driftscope import api
from driftscope.api import capture
from driftscope.captures.capture import Capture
from driftscope.captures.state_checks import check_states
from driftscope.chain.pair import load_pair
from driftscope.errors import DriftscopeError
from driftscope.measuring.measure import Prepared
from driftscope.probes import chosen
from driftscope.target.ends import TargetEnds
from tests.audit import pair as planted
from tests.dumps import writers

TAPS = planted.BOUNDARIES


@pytest.fixture(scope="module")
def records() -> list[Capture]:
    held = planted.captures()[:14]
    return [dataclasses.replace(r, boundaries={b: r.boundaries[b] for b in TAPS}) for r in held]


def broken(records: list[Capture], change: Callable[[int, dict[int, torch.Tensor]], None]) -> list[Capture]:
    """Copies of the records, each changed in place by `change(index, boundaries)`."""
    made = []
    for index, record in enumerate(records):
        states = {b: state.clone() for b, state in record.boundaries.items()}
        change(index, states)
        made.append(dataclasses.replace(record, boundaries=states))
    return made


def zero_rows(index, states):
    for state in states.values():
        state[:16] = 0


def zero_columns(index, states):
    states[4][:, :16] = 0


def zero_prompt(index, states):
    if index == 3:
        states[2][:] = 0


def zero_tap(index, states):
    states[4][:] = 0


def constant_rows(index, states):
    states[5][20] = 0.5


def not_finite(index, states):
    states[5][7] = torch.nan


def neighbours(index, states):
    for state in states.values():
        state[9:30:4] = state[8:29:4].clone()


def stale_prompt(index, states):
    if index == 5:
        states[4][10:20] = other[4][10:20]


other: dict[int, torch.Tensor] = {}


def tap_twice(index, states):
    states[4] = states[2].clone()


def every_eighth(index, states):
    generator = torch.Generator().manual_seed(index)
    for state in states.values():
        part = state[5::8]
        state[5::8] = torch.randn(part.shape, generator=generator) * part.square().mean(-1, keepdim=True).sqrt()


def every_eighth_too_large(index, states):
    for state in states.values():
        state[5::8] *= 8


RECIPES = {
    zero_rows: r"text p0: boundary 2 is zero in 16 of \d+ rows \(0 to 15\)",
    zero_columns: r"boundary 4 has the same value at every position in 16 of 32 features \(0 to 15\)",
    zero_prompt: r"text p3: boundary 2 is zero in (\d+) of \1 rows \(0 to \d+\); .* its share of the fused input is 0",
    zero_tap: r"text p0: boundary 4 is zero in (\d+) of \1 rows .* its share of the fused input is 0",
    constant_rows: r"boundary 5 is constant in 1 of \d+ rows \(20\)",
    not_finite: r"boundary 5 is not finite in 1 of \d+ rows \(7\)",
    neighbours: r"boundary 2 has rows that are copies of others with another token, .* row \d+ is row \d+;",
    stale_prompt: r"text p5: boundary 4 has rows that are copies of others .* is row \d+ of text p0;",
    tap_twice: r"boundaries 2 and 4 hold the same states in \d+ of \d+ rows",
    every_eighth: r"every 8th row, from row 5 on, has features that do not fit together",
    every_eighth_too_large: r"every 8th row, from row 5 on, has features that do not fit together",
}


@pytest.mark.parametrize("change", RECIPES, ids=lambda change: change.__name__)
def test_what_no_pass_can_have_made_is_named(change, records: list[Capture]) -> None:
    other.update(records[0].boundaries)
    with pytest.raises(DriftscopeError, match=RECIPES[change]) as caught:
        check_states(broken(records, change))
    assert "\n" not in str(caught.value)


def test_sound_states_of_every_boundary_pass() -> None:
    check_states(planted.captures())


def test_two_first_tokens_that_are_the_same_are_no_copies(records: list[Capture]) -> None:
    """After one token again and again every row reads the same."""
    first = records[0]
    token_ids, states = first.token_ids.clone(), {b: s.clone() for b, s in first.boundaries.items()}
    token_ids[:6] = token_ids[0]
    for state in states.values():
        state[:6] = state[0]
    check_states([dataclasses.replace(first, token_ids=token_ids, boundaries=states), *records[1:]])


def test_a_dump_is_refused_and_nothing_is_written(records: list[Capture], tmp_path: Path) -> None:
    target = planted.planted_target()
    source = writers.specforge(tmp_path / "dump", broken(records, zero_columns), TAPS)
    ends = _ends(target, tmp_path)
    with pytest.raises(DriftscopeError, match="boundary 4 has the same value at every position in 16 of 32 features"):
        capture(ends, source=source, out=tmp_path / "captures", layers=tuple(b - 1 for b in TAPS))
    assert not (tmp_path / "captures").exists()


def _ends(target, folder: Path) -> TargetEnds:
    from driftscope.target.ends import load_target_ends

    target.model.save_pretrained(folder / "target")
    target.tokenizer.save_pretrained(folder / "target")
    return load_target_ends(folder / "target")


def test_a_probe_stops_before_the_run(monkeypatch: pytest.MonkeyPatch, records: list[Capture], tmp_path: Path) -> None:
    from driftscope.checkpoints import save_checkpoint

    save_checkpoint(
        tmp_path / "d", planted.planted_config("eagle3.1"), planted.planted_weights("eagle3.1"), "specforge"
    )
    pair = load_pair(tmp_path / "d", planted.planted_target())
    held = broken(records, zero_tap)
    sources = [type("Source", (), {"capture": record})() for record in held]
    monkeypatch.setattr(api, "take_captures", lambda *_, **__: Prepared(sources, {}, "auto"))
    with pytest.raises(DriftscopeError, match="boundary 4 is zero"):
        api.probe_pair(pair, out=tmp_path / "run", probes=chosen("norms"), audit=False)
    assert not (tmp_path / "run").exists()
