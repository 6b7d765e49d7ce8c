"""Planted effects of FC-norm and post-norm come back out, and nothing else does."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from driftscope.compare import Compared, Comparison, compare
from driftscope.compare.view import render_comparison
from tests.drafters import Shard, noise_shards, write_drafter
from tests.fake_run import Fake

BASE = Fake(prompts=14, anchors=16, depth=4, heads=2, loops=0)
CORNERS = {"eagle3": (False, False), "fc": (True, False), "post": (False, True), "both": (True, True)}
Change = Callable[[bool, bool], dict[str, Any]]


def four(folder: Path, change: Change, **how: Any) -> Comparison:
    """The 2 x 2, given in an order of its own; each drafter has noise of its own beside the planted effect."""
    runs = []
    for number, (name, (fc, post)) in enumerate(CORNERS.items()):

        def jitter(shard: Shard, prompt: int, number: int = number) -> None:
            rng = np.random.default_rng([number, prompt])
            rows = shard["anchors"]
            drawn = np.exp(rng.normal(0, 0.02)) * np.exp(rng.normal(0, 0.02, len(rows)))
            rows["rms/carry"] *= np.where(rows["step"] > 1, drawn, 1.0)

        switches = {"fc_norm": fc, "carry": "post" if post else "pre"}
        runs.append(write_drafter(folder / name, BASE.changed(**change(fc, post)), edit=jitter, **switches, **how))
    return compare([runs[place] for place in (3, 1, 0, 2)], resamples=400)


def quantity(comparison: Comparison, name: str) -> Compared:
    return next(part for part in comparison.compared if part.quantity.name == name)


def directions(part: Compared) -> dict[str, str]:
    return {f"{effect.name} {effect.given}".strip(): effect.direction for effect in part.effects}


@pytest.fixture(scope="module")
def main_only(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    return four(tmp_path_factory.mktemp("main"), lambda fc, post: {"growth": 1.0 if post else 1.2})


def test_a_main_effect_only(main_only: Comparison) -> None:
    part = quantity(main_only, "growth")
    found = directions(part)
    assert main_only.design.kind == "factorial"
    assert main_only.runs == ("eagle3", "fc", "post", "both")
    assert found["carry"] == found["carry without FC-norm"] == found["carry with FC-norm"] == "down"
    assert found["fc_norm"] == found["interaction"] == "none"
    for given in ("", "without FC-norm", "with FC-norm"):
        effect = part.effect("carry", given)
        assert effect is not None
        assert effect.interval.mean == pytest.approx(1.2**-3, rel=0.02)
    assert part.sentence.startswith("No effect of FC-norm on norm growth at step 4 can be told (x")
    assert "post-norm lowers norm growth at step 4 (x0.5" in part.sentence
    assert part.sentence.endswith("holds 1.")


def test_the_headline_names_what_moved_and_for_whom(main_only: Comparison) -> None:
    assert main_only.headline.startswith("For these four checkpoints, post-norm lowers norm growth at step 4 (x0.5")
    assert "FC-norm moves no figure by more than chance" in main_only.headline
    assert main_only.headline.endswith("(the intervals cover prompts, not training runs).")
    assert any("everything else in the training" in note for note in main_only.notes)


def test_an_interaction_only(tmp_path: Path) -> None:
    # Each switch alone does nothing in the mean: growth is large where exactly one is on.
    found = four(tmp_path, lambda fc, post: {"growth": 1.2 if fc != post else 1.0})
    part = quantity(found, "growth")
    told = directions(part)
    assert told["interaction"] == "down"
    assert told["carry without FC-norm"] == "up"
    assert told["carry with FC-norm"] == "down"
    assert told["carry"] == told["fc_norm"] == "none"
    assert part.sentence.startswith("The two do not add up on norm growth at step 4 (interaction x0.3")
    assert "norm growth at step 4 that depends on FC-norm" in found.headline


def test_no_effect_at_all(tmp_path: Path) -> None:
    found = four(tmp_path, lambda fc, post: {})
    for part in found.compared:
        assert set(directions(part).values()) == {"none"}, part.quantity.name
    assert quantity(found, "growth").sentence.startswith(
        "No effect on norm growth at step 4 can be told: FC-norm (x1.0"
    )
    assert found.headline.count("moves no figure by more than chance") == 2


def test_false_effects_are_rare(tmp_path: Path) -> None:
    """The rate of any effect on growth where none was planted, over seeds."""
    from driftscope.compare.effects import FACTORIAL
    from driftscope.stats.contrasts import contrasts, ratio

    weights = np.array(list(FACTORIAL.values()))
    wrong = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        common = rng.normal(0, 1, 24)
        parts = [(common + rng.normal(0, 0.3, 24), np.ones(24)) for _ in range(4)]
        found = contrasts(parts, weights[-1:], ratio, resamples=300)
        wrong += not found.low[0] <= 0 <= found.high[0]
    assert wrong <= 11


def test_effects_on_every_kind_of_figure(tmp_path: Path) -> None:
    def change(fc: bool, post: bool) -> dict[str, Any]:
        return {"acceptance": 0.9 if fc else 0.5, "self_shift": 0.0 if post else 0.4, "sink_shift": 0.0}

    runs = [
        write_drafter(
            tmp_path / name,
            BASE.changed(**change(fc, post)),
            fc_norm=fc,
            carry="post" if post else "pre",
            shards=noise_shards(0.6 if post else 0.2),
        )
        for name, (fc, post) in CORNERS.items()
    ]
    found = compare(runs, resamples=200)
    for name in ("served", "anchor_mean", "acceptance_1", "acceptance_later"):
        assert directions(quantity(found, name))["fc_norm"] == "up"
        assert directions(quantity(found, name))["carry"] == "none"
    for name in ("displacement", "self_excess", "self_excess_slope"):
        assert directions(quantity(found, name))["carry"] == "down"
    half = quantity(found, "noise_half_point")
    assert directions(half)["carry"] == "up"
    assert half.values["eagle3"].mean == pytest.approx(0.2, abs=0.03)
    assert half.values["both"].mean == pytest.approx(0.6, abs=0.05)
    assert "noise_0.1" in {part.quantity.name for part in found.compared}


def test_a_half_point_beyond_the_range_has_no_effects(tmp_path: Path) -> None:
    runs = [
        write_drafter(tmp_path / name, BASE, carry=carry, shards=noise_shards(half))
        for name, carry, half in (("a", "pre", 0.2), ("b", "post", 9.0))
    ]
    found = compare(runs, resamples=100)
    part = quantity(found, "noise_half_point")
    assert list(part.values) == ["a"]
    assert part.differences == {}
    assert part.sentence == ""
    assert not part.quantity.key
    instead = quantity(found, "noise_0.5")
    assert instead.quantity.key
    assert instead.sentence.startswith("Post-norm raises accepted length kept under state noise 0.5 (+0.")


def two(folder: Path, first: dict[str, Any], second: dict[str, Any]) -> Comparison:
    runs = [
        write_drafter(folder / name, BASE.changed(**how.pop("change", {})), **how)
        for name, how in (("one", first), ("two", second))
    ]
    return compare(runs, resamples=200)


def test_one_switch_is_told_as_its_effect_in_either_order(tmp_path: Path) -> None:
    found = two(tmp_path, {"carry": "post", "change": {"growth": 1.0}}, {})
    assert found.design.kind == "one switch"
    assert found.runs == ("two", "one")
    assert quantity(found, "growth").sentence.startswith("Post-norm lowers norm growth at step 4 (x0.58, 95%")
    assert found.headline.startswith("Between these two checkpoints, post-norm lowers norm growth at step 4 (x0.58)")


def test_other_switches_that_differ_are_named(tmp_path: Path) -> None:
    found = two(tmp_path, {"carry": "post", "num_layers": 2}, {"num_layers": 1})
    assert "they also differ in num_layers" in found.headline
    assert any("num_layers" in note for note in found.notes)


def test_two_switches_are_not_attributed(tmp_path: Path) -> None:
    found = two(tmp_path, {"carry": "post", "fc_norm": True}, {})
    assert found.design.kind == "both switches"
    assert "cannot be attributed to one" in found.headline
    assert all(part.sentence == "" for part in found.compared)


def test_the_same_switches_and_more_than_two(tmp_path: Path) -> None:
    assert "same FC-norm and carry" in two(tmp_path / "a", {}, {"change": {"acceptance": 0.9}}).headline
    runs = [write_drafter(tmp_path / str(number), BASE) for number in range(3)]
    found = compare(runs, resamples=100)
    assert found.design.kind == "several"
    assert set(quantity(found, "served").differences) == {"1", "2"}


def test_a_switch_flipped_at_inference_is_called_a_control(tmp_path: Path) -> None:
    runs = [write_drafter(tmp_path / name, BASE, carry=carry) for name, carry in (("a", "pre"), ("b", "post"))]
    same = runs[0].info.checkpoint.model_dump() | {"switches": {"carry": "post", "fc_norm": False}}
    runs[1].update(checkpoint=same)
    found = compare(runs, resamples=100)
    assert any("flipped at inference" in note for note in found.notes)
    assert found.runs == ("a", "b")


def test_a_single_run_is_told_its_causes(tmp_path: Path) -> None:
    found = compare([write_drafter(tmp_path / "a", BASE)], resamples=100)
    assert found.design.kind == "single"
    assert found.headline.startswith("One known cause is seen: norm growth (1.7")
    assert "untested here" in found.headline
    assert quantity(found, "growth").values["a"].mean == pytest.approx(1.2**3, rel=0.02)


def test_without_intervals_nothing_is_claimed(tmp_path: Path) -> None:
    runs = [
        write_drafter(
            tmp_path / name,
            BASE.changed(prompts=4, growth=1.0 if post else 1.5),
            fc_norm=fc,
            carry="post" if post else "pre",
        )
        for name, (fc, post) in CORNERS.items()
    ]
    found = compare(runs, resamples=100)
    assert found.headline.count("moves no figure by more than chance") == 2
    assert "without intervals, which need 12 prompts" in quantity(found, "growth").sentence


def test_values_are_those_of_the_summary(tmp_path: Path) -> None:
    run = write_drafter(tmp_path / "a", BASE)
    found = compare([run], resamples=200)
    last, lengths = run.summary()["steps"][-1], run.summary()["acceptance_length"]
    for name, expected in (
        ("growth", last["growth"]),
        ("displacement", last["displacement"]),
        ("self_excess", last["excess"]["self_generated"]),
        ("served", lengths["served"]),
        ("anchor_mean", lengths["anchor_mean"]),
        ("acceptance_1", run.summary()["steps"][0]["acceptance"]["joint"]),
    ):
        assert quantity(found, name).values["a"].mean == pytest.approx(expected["mean"]), name
        assert quantity(found, name).values["a"].low == pytest.approx(expected["low"], rel=0.05), name


def test_frames_are_tidy(main_only: Comparison) -> None:
    values, effects = main_only.values_frame(), main_only.effects_frame()
    assert len(values) == 4 * len(main_only.compared)
    assert not values.duplicated(["quantity", "run"]).any()
    assert not effects.duplicated(["quantity", "effect", "given"]).any()
    assert set(effects["effect"]) == {"fc_norm", "carry", "interaction"}
    assert values[["mean", "low", "high"]].dtypes.eq(float).all()
    assert set(main_only.differences_frame()["reference"]) == {"eagle3"}


def test_json_has_the_answer(main_only: Comparison) -> None:
    content = json.loads(json.dumps(main_only.to_dict(), allow_nan=False))
    assert content["design"] == "factorial"
    assert content["runs"][3] == {
        "name": "both",
        "folder": main_only.folders[3],
        "fc_norm": True,
        "carry": "post",
    }
    growth = next(part for part in content["quantities"] if part["name"] == "growth")
    assert list(growth["values"]) == ["eagle3", "fc", "post", "both"]
    assert {"effect", "given", "mean", "low", "high", "null", "direction"} == set(growth["effects"][0])
    assert growth["scale"] == "log"


@pytest.mark.parametrize("width", [80, 120])
def test_the_terminal_shows_the_answer_first_within_its_width(main_only: Comparison, width: int) -> None:
    console = Console(width=width, record=True, file=open("/dev/null", "w"), markup=False, emoji=False)  # noqa: SIM115
    render_comparison(main_only, console)
    text = console.export_text()
    assert "For these four checkpoints" in text.splitlines()[1]
    assert max(map(len, text.splitlines())) <= width
    assert "x0.58" in text
    assert "…" not in text
