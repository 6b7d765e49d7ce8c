"""A planted engine is told from a sound one, with the switch that it has wrong, and a sound one is not accused."""

from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from driftscope.errors import RunError
from driftscope.from_engines.counters.model import Counters
from driftscope.serving.diagnosis import Traffic, diagnose
from driftscope.serving.hints import FIRST, LATER
from driftscope.serving.reading import Reading, from_content, to_content
from driftscope.serving.report import content
from driftscope.serving.view import render_diagnosis
from driftscope.serving.words import explanation, finding, headline, next_steps
from driftscope.stats.acceptance import served_walk
from driftscope.stats.walks import PromptWalk, Walks
from tests.serving import planted
from tests.serving.planted import SOUND, WRONG_CARRY, WRONG_LAYERS, counters, readings, walks

LONG = {"prompts": 96, "seed": 50}


def test_rounds_are_those_of_the_served_walk() -> None:
    made = walks(SOUND, prompts=3, new_tokens=30)
    for k in (1, 2, 3):
        counts = made.counts(k)
        for row, prompt in zip(counts, made.prompts, strict=True):
            rounds = served_walk(prompt.accepted[: 29 - k + 1], k).accepted
            assert row.tolist() == [len(rounds), *((rounds >= size).sum() for size in range(1, k + 1))]


def test_a_text_that_ends_in_a_round_leaves_what_follows_open() -> None:
    # Six tokens: the round of anchor 3 has two tokens of text ahead, both accepted.
    prompt = PromptWalk("a", "", 6, np.array([2, 0, 0, 2, 1]))
    low, high = Walks(3, (prompt,)).bounds(3, None)
    assert low.tolist() == [[2, 2, 2, 0]]
    assert high.tolist() == [[2, 2, 2, 1]]
    # With four tokens the second round does not start.
    assert Walks(3, (prompt,)).bounds(3, 4)[0].tolist() == [[1, 1, 1, 0]]


def test_digits_hold_a_walk() -> None:
    prompt = walks(SOUND, prompts=1).prompts[0]
    again = PromptWalk.of(prompt.prompt, prompt.category, prompt.new_tokens, prompt.digits)
    assert (again.accepted == prompt.accepted).all()
    with pytest.raises(ValueError, match="more accepted tokens than the text has"):
        PromptWalk.of("a", "", 3, "09")
    with pytest.raises(ValueError, match="invalid literal"):
        PromptWalk.of("a", "", 3, "0-")


@pytest.mark.parametrize("traffic", [Traffic(), Traffic(alike=True)], ids=["other", "alike"])
@pytest.mark.parametrize("seed", range(4))
def test_a_sound_engine_is_not_accused(traffic: Traffic, seed: int) -> None:
    found = diagnose(counters(walks(SOUND, prompts=96, seed=50 + seed)), readings(), traffic)
    assert found.outcome in ("same", "cannot tell"), headline(found)
    assert finding(found) is None
    assert not found.tied


def test_a_sound_engine_with_enough_drafts_serves_what_the_walk_serves() -> None:
    found = diagnose(counters(walks(SOUND, prompts=300, seed=50)), readings(prompts=160), Traffic(alike=True))
    assert found.outcome == "same"
    assert found.exit_code == 0
    assert "serves what the walk serves" in headline(found)


def test_the_wrong_carry_is_named_and_placed_after_position_1() -> None:
    found = diagnose(counters(walks(WRONG_CARRY, **LONG)), readings(), Traffic(alike=True))
    assert (found.outcome, found.position, found.exit_code) == ("less", 2, 1)
    assert found.named is not None
    assert found.named.reading.name == "carry: pre"
    assert LATER in next_steps(found)
    assert any("norm_output" in step for step in next_steps(found))
    told = finding(found)
    assert told is not None
    assert told.code == "DS403"
    assert "carry as pre" in told.statement


def test_wrong_layers_show_at_position_1() -> None:
    found = diagnose(counters(walks(WRONG_LAYERS, **LONG)), readings(), Traffic(alike=True))
    assert (found.outcome, found.position) == ("less", 1)
    assert found.named is not None
    assert found.named.reading.switch == "aux_boundaries"
    assert FIRST in next_steps(found)
    assert any("eagle_aux_hidden_state_layer_ids" in step for step in next_steps(found))


def test_what_no_reading_predicts_is_not_named() -> None:
    found = diagnose(counters(walks((0.15, 0.6, 0.6), **LONG)), readings(), Traffic(alike=True))
    assert found.outcome == "less"
    assert found.named is None
    assert "none of the readings" in explanation(found)
    told = finding(found)
    assert told is not None
    assert told.code == "DS401"


def test_readings_that_predict_the_same_are_listed_as_ties() -> None:
    given = readings()
    twin = replace(given[1], name="position_increment: 0", switch="position_increment", alternative="0")
    found = diagnose(counters(walks(WRONG_CARRY, **LONG)), [*given, twin], Traffic(alike=True))
    assert found.named is None
    assert {part.reading.switch for part in found.tied} == {"carry", "position_increment"}
    assert "do not tell apart" in explanation(found)
    told = finding(found)
    assert told is not None
    assert told.code == "DS402"


def test_an_engine_that_does_better_is_told() -> None:
    found = diagnose(counters(walks(SOUND, easier=0.6, **LONG)), readings(), Traffic(alike=True))
    assert (found.outcome, found.exit_code) == ("more", 1)
    assert "accepts more" in headline(found)
    told = finding(found)
    assert told is not None
    assert told.code == "DS404"


def test_few_drafts_cannot_tell_and_say_how_many_would() -> None:
    few = counters(walks(SOUND, prompts=3, seed=9))
    found = diagnose(few, readings(), Traffic(alike=True))
    assert (found.outcome, found.exit_code) == ("cannot tell", 2)
    assert "too little to tell" in headline(found)
    assert found.more_drafts is None or found.more_drafts > few.drafts


def test_another_kind_of_traffic_is_no_fault() -> None:
    """Prompts that are all easier, or harder, as one kind of the run's is: the spread between kinds allows it."""
    kinds = dict(zip(planted.KINDS, (-0.5, 0.5, 0.2, -0.2), strict=True))
    parts = [walks(SOUND, prompts=8, seed=20 + n, easier=shift) for n, shift in enumerate(kinds.values())]
    prompts = [
        replace(p, prompt=f"{kind}{p.prompt}", category=kind)
        for kind, w in zip(kinds, parts, strict=True)
        for p in w.prompts
    ]
    run = [Reading("declared", walks=Walks(3, tuple(prompts)))]
    easy = counters(walks(SOUND, easier=0.5, **LONG))
    assert diagnose(easy, run, Traffic()).outcome in ("same", "cannot tell")
    assert diagnose(easy, run, Traffic(alike=True)).outcome == "more"


def test_the_very_prompts_are_compared_exactly() -> None:
    given = readings()
    assert given[0].walks is not None
    assert given[1].walks is not None
    served = counters(given[0].walks)
    found = diagnose(served, given, Traffic(same_prompts=True))
    assert (found.outcome, found.exact) == ("same", True)
    assert found.p == pytest.approx(1.0)
    wrong = diagnose(counters(given[1].walks), given, Traffic(same_prompts=True))
    assert wrong.outcome == "less"
    assert wrong.named is not None
    assert wrong.named.reading.name == "carry: pre"
    # The same counters say nothing for sure where they may be of other prompts.
    part = counters(given[1].walks.part([f"p{n}" for n in range(4)]))
    assert diagnose(part, given, Traffic()).outcome in ("cannot tell", "less")


def test_a_shorter_answer_and_fewer_drafted_tokens() -> None:
    given = readings()
    assert given[0].walks is not None
    for k, tokens in ((2, 60), (3, 40)):
        served = counters(given[0].walks, k=k, tokens=tokens)
        found = diagnose(served, given, Traffic(same_prompts=True, max_tokens=tokens))
        assert found.exact, (k, tokens)


def test_a_mean_without_positions_is_compared_as_a_mean() -> None:
    served = counters(walks(WRONG_CARRY, **LONG))
    mean = Counters("sglang", "mean", served.drafts, 3, served.accepted, None, "taken off")
    found = diagnose(mean, readings(), Traffic(alike=True))
    assert (found.outcome, found.position) == ("less", None)
    assert "tokens a round" in headline(found)
    # Another reading loses as much: without positions nothing tells them apart.
    assert found.named is None or found.named.reading.switch in ("carry", "aux_boundaries")
    with pytest.raises(RunError, match="--depth 5"):
        diagnose(replace(mean, tokens=5), readings())


def test_more_positions_than_the_run_are_left_out() -> None:
    served = counters(walks((*SOUND, 0.3, 0.3), **LONG))
    found = diagnose(served, readings(), Traffic(alike=True))
    assert found.counters.tokens == 3


def test_walks_are_kept_and_read_back() -> None:
    made = readings()
    again = from_content(to_content(made))
    assert [(part.name, part.reason) for part in again] == [(part.name, part.reason) for part in made]
    for one, other in zip(made, again, strict=True):
        assert (one.walks is None) == (other.walks is None)
        if one.walks is not None and other.walks is not None:
            assert (one.walks.counts(3) == other.walks.counts(3)).all()


@pytest.mark.parametrize("chances", [SOUND, WRONG_CARRY, (0.15, 0.6, 0.6)])
def test_screens_and_json_say_the_same(chances: tuple[float, ...]) -> None:
    found = diagnose(counters(walks(chances, **LONG)), readings(), Traffic(alike=True))
    console = Console(file=io.StringIO(), width=100)
    render_diagnosis(found, console, run="runs/x", every=True)
    assert isinstance(console.file, io.StringIO)
    printed = " ".join(console.file.getvalue().split())
    plain = content(found)
    assert "not walked" in printed.lower()
    assert plain["outcome"] == found.outcome
    assert len(plain["readings"]) == 4
    assert plain["not_walked"] == [{"name": "head: own", "reason": "no lm_head.weight is stored"}]
    assert headline(found).split(" (")[0][1:] in printed


def test_a_reading_that_fits_badly_is_not_named() -> None:
    given = readings()
    served = counters(walks((0.45, 0.26, 0.12), **LONG))
    found = diagnose(served, given[:3], Traffic(alike=True))
    assert found.outcome == "less"
    assert found.named is None or (found.named.p or 0.0) >= 0.05


def test_what_costs_nothing_is_still_told_where_every_counter_says_so() -> None:
    given = readings()
    slight = walks((0.455, 0.40, 0.38), seed=0)
    near = [*given, Reading("rope.theta: 10000", "rope.theta", "1000", "10000", "DS204", walks=slight)]
    found = diagnose(counters(slight), near, Traffic(same_prompts=True))
    assert found.outcome == "same"
    assert [part.reading.name for part in found.to_the_digit] == ["rope.theta: 10000"]
    assert "every single counter" in explanation(found)
    assert finding(found) is None
