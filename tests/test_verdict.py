from __future__ import annotations

import itertools

import pytest

from driftscope.findings.verdict import ONSETS, verdict
from tests.fake_summary import drifting, step, summary, without

CLAUSES = {
    "norm_up": "norm grows",
    "displaced": "attention is displaced",
    "self_up": "attention moves to the drafter's own tokens",
    "sink_down": "the sink loses attention",
}


@pytest.mark.parametrize(
    "found", [combination for size in range(1, 5) for combination in itertools.combinations(ONSETS, size)]
)
def test_every_combination_of_onsets_is_named_in_the_headline(found: tuple[str, ...]) -> None:
    result = verdict(drifting(**dict.fromkeys(found, 3)))
    assert result.kind == "drift"
    assert result.headline.startswith("Drift starts at step 3: ")
    said = {key for key, clause in CLAUSES.items() if clause in result.headline}
    # Where attention moved to is said instead of that it moved.
    attention = {"self_up", "sink_down"} & set(found)
    assert said == set(found) - ({"displaced"} if attention else set())
    assert [reading.key for reading in result.readings if reading.found] == [key for key in ONSETS if key in found]


def test_the_earliest_onset_comes_first_and_later_ones_follow() -> None:
    headline = verdict(drifting(norm_up=2, displaced=4, sink_down=6)).headline
    assert headline.startswith("Drift starts at step 2: the carried state's norm grows (3.58x at step 8); from step 4 ")
    assert headline.index("from step 4 attention is displaced") < headline.index("from step 6 the sink loses")


def test_figures_come_with_their_intervals() -> None:
    sentences = {reading.key: reading.sentence for reading in verdict(drifting(norm_up=2, self_up=2)).readings}
    assert sentences["norm_up"] == "3.58x at step 8 (95% 3.57 to 3.59), 3.58x against no drafting"
    assert sentences["self_up"].startswith("+0.14 at step 8 (95% +0.13 to +0.15) against no drafting")
    assert "0.05 of attention at step 8" in sentences["sink_down"]
    assert "0.40 at step 1" in sentences["sink_down"]


def test_displacement_says_from_where_to_where() -> None:
    result = verdict(drifting(displaced=3))
    assert "from the sink (-0.14), to the current row (+0.14)" in result.readings[1].sentence
    balanced = summary([step(number, displacement=0.2 * (number > 1)) for number in range(1, 9)], displaced=2)
    assert "opposite directions" in verdict(balanced).readings[1].sentence


def test_growth_that_positions_explain_is_said_to_be_so() -> None:
    figures = drifting(norm_up=2)
    for row in figures["steps"]:
        row["matched_growth"] = {"mean": 1.01, "low": 1.0, "high": 1.02}
    assert "but only 1.01x against no drafting" in verdict(figures).readings[0].sentence


def test_no_drift() -> None:
    result = verdict(summary())
    assert result.kind == "none"
    assert result.headline == (
        "No drift found up to step 8: attention stays where it is without drafting (displacement 0.00 at step 8)"
        " and the carried state's norm does not grow (1.00x at step 8)."
    )


def test_a_shrinking_norm_is_not_called_flat() -> None:
    headline = verdict(summary([step(number, growth=0.8 ** (number - 1)) for number in range(1, 9)])).headline
    assert "norm shrinks (0.21x at step 8)" in headline


@pytest.mark.parametrize("onset", [{}, {"displaced": 3}])
def test_a_flat_norm_under_a_post_norm_carry_is_no_proof(onset: dict[str, int]) -> None:
    result = verdict(summary(carry="post", **onset))
    assert "flat by construction" in result.readings[0].sentence
    assert ("no proof of health" in result.headline) == (not onset)
    assert "norm does not grow" not in result.headline


def test_a_norm_that_grows_under_a_post_norm_carry_is_drift() -> None:
    assert verdict(drifting(norm_up=2) | {"checkpoint": {"switches": {"carry": "post"}}}).kind == "drift"


def test_what_was_not_measurable_limits_the_verdict() -> None:
    figures = summary([step(number, sink=0.02) for number in range(1, 9)], sink_down="not measurable")
    result = verdict(figures)
    assert "in what could be measured" in result.headline
    assert "only 0.020 of attention at step 1" in result.readings[3].sentence
    assert "no room for more" in verdict(summary(self_up="not measurable")).readings[2].sentence


def test_a_target_without_sinks_has_none_to_lose() -> None:
    figures = summary(sink_down="not measurable")
    figures["target"]["sinks"] = []
    assert verdict(figures).readings[3].sentence == "the target has no sink position"


def test_an_effect_that_does_not_last_is_mentioned() -> None:
    steps = [step(number, growth=1.3 if number == 4 else 1.0) for number in range(1, 9)]
    assert "beyond the threshold at some step" in verdict(summary(steps)).readings[0].sentence
    assert "beyond" not in verdict(summary()).readings[0].sentence


def test_too_few_prompts_give_no_verdict_but_figures() -> None:
    steps = [step(number, growth=1.2 ** (number - 1), spread=None) for number in range(1, 9)]
    result = verdict(summary(steps, **dict.fromkeys(ONSETS, "not measurable")))
    assert result.kind == "unknown"
    assert "too few prompts for intervals (at least 12" in result.headline
    assert "3.58x at step 8," in result.readings[0].sentence


@pytest.mark.parametrize(("count", "words"), [(0, "nothing was measured"), (1, "at least two steps")])
def test_nothing_to_say(count: int, words: str) -> None:
    result = verdict(summary([step(number + 1) for number in range(count)]))
    assert result.kind == "unknown"
    assert words in result.headline


def test_nan_is_not_measured() -> None:
    figures = without(without(drifting(norm_up=2, self_up=3), "growth"), "excess", "self_generated")
    result = verdict(figures)
    assert "nan" not in " ".join([result.headline, *(reading.sentence for reading in result.readings)])
    assert "not measured" in result.headline


def test_a_quantity_that_was_not_recorded_is_said_to_be_so() -> None:
    figures = summary()
    del figures["onset"]["displaced"], figures["onset"]["self_up"]
    result = verdict(figures)
    assert [reading.sentence for reading in result.readings].count("not recorded") == 2
    assert "the sink keeps its attention (0.40 at step 8)" in result.headline


def test_an_onset_shows_how_far_it_is_known() -> None:
    figures = drifting(norm_up=3, displaced=4)
    figures["onset_spread"] = {
        "norm_up": {"step": 3, "low": 2, "high": 3},
        "displaced": {"step": 4, "low": 4, "high": None},
        "self_up": {"step": "none", "low": 6, "high": None},
        "sink_down": {"step": "none", "low": None, "high": None},
    }
    result = verdict(figures)
    assert result.headline.startswith("Drift starts at step 3 (2 to 3): the carried state's norm grows")
    assert "from step 4 (4 or later) attention is displaced" in result.headline
    assert [reading.start for reading in result.readings] == [
        "step 3 (2 to 3)",
        "step 4 (4 or later)",
        "none shown",
        "none",
    ]
    assert "an onset from step 6 on cannot be ruled out" in result.readings[2].sentence
    figures["onset_spread"]["norm_up"] = {"step": 3, "low": 3, "high": 3}
    assert verdict(figures).headline.startswith("Drift starts at step 3: ")
