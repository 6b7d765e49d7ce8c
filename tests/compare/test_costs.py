"""Effects of the two norms on what drift costs, and several trainings of a cell."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from driftscope.compare import Comparison, compare
from driftscope.compare.model import Compared
from driftscope.compare.view import render_comparison
from tests.cost_shards import cost_shards
from tests.drafters import write_drafter
from tests.fake_run import Fake

BASE = Fake(prompts=16, anchors=12, depth=4, heads=2, loops=0, growth=1.0, sink_shift=0.0, self_shift=0.0)
CORNERS = {"neither": (False, False), "fc": (True, False), "post": (False, True), "both": (True, True)}


def quantity(comparison: Comparison, name: str) -> Compared:
    return next(part for part in comparison.compared if part.quantity.name == name)


def drafter(folder: Path, fc: bool, post: bool, *, seed: int = 0, worse: float = 0.0, growth: float = 1.0) -> object:
    """Post-norm removes the cost through the state, FC-norm that through attention; `worse` is the luck of a training."""
    costs = {"state": 0.02 if post else 0.4, "pattern": (0.02 if fc else 0.25) + worse}
    shards = cost_shards(costs, unknown=0.3, seed=seed)
    switches = {"fc_norm": fc, "carry": "post" if post else "pre"}
    return write_drafter(folder, BASE.changed(growth=growth), shards=shards, **switches)


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    folder = tmp_path_factory.mktemp("four")
    runs = [drafter(folder / name, *corner, seed=place) for place, (name, corner) in enumerate(CORNERS.items())]
    return compare(runs, resamples=400)  # type: ignore[arg-type]


def test_each_switch_removes_the_cost_of_its_path_in_tokens(four: Comparison) -> None:
    state, pattern = quantity(four, "cost_state"), quantity(four, "cost_pattern")
    assert four.runs == ("neither", "fc", "post", "both")
    assert state.effect("carry").interval.mean == pytest.approx(-0.38, abs=0.06)  # type: ignore[union-attr]
    assert state.effect("carry").direction == "down"  # type: ignore[union-attr]
    assert state.effect("fc_norm").direction == "none"  # type: ignore[union-attr]
    assert pattern.effect("fc_norm").interval.mean == pytest.approx(-0.23, abs=0.06)  # type: ignore[union-attr]
    assert pattern.effect("carry").direction == "none"  # type: ignore[union-attr]
    assert pattern.effect("interaction").direction == "none"  # type: ignore[union-attr]
    size, answer, _ = four.headline.split(". ", 2)
    assert size.startswith("For these four checkpoints, drift costs 0.0")
    assert size.endswith(" accepted tokens")
    post, fc = answer.split("; FC-norm")
    assert post.startswith("Post-norm lowers that by 0.3")
    assert "through the carried state (-0.3" in post
    assert "attention" not in post
    assert fc.startswith(" lowers that by 0.2")
    assert "through attention (-0.2" in fc
    assert "the carried state" not in fc


def test_a_switch_that_helps_only_without_the_other_is_told_for_both(tmp_path: Path) -> None:
    """FC-norm removes what drift costs through the state, and so does post-norm: together they remove it once."""
    costs = {"neither": 0.4, "fc": 0.0, "post": 0.0, "both": 0.0}
    runs = [
        write_drafter(
            tmp_path / name,
            BASE,
            shards=cost_shards({"state": costs[name]}, unknown=0.3, seed=place),
            fc_norm=fc,
            carry="post" if post else "pre",
        )
        for place, (name, (fc, post)) in enumerate(CORNERS.items())
    ]
    found = compare(runs, resamples=400).headline
    assert "Post-norm changes that by -0.3" in found
    assert "without FC-norm and by +0.00" in found
    assert "; FC-norm changes that by -0.3" in found
    assert "under the pre-norm carry" in found


def test_no_effect_on_the_cost_is_said(tmp_path: Path) -> None:
    runs = [drafter(tmp_path / name, False, False, seed=0) for name in CORNERS]
    for run, (fc, post) in zip(runs, CORNERS.values(), strict=True):
        switches = run.info.checkpoint.switches | {"fc_norm": fc, "carry": "post" if post else "pre"}
        run.update(checkpoint=run.info.checkpoint.model_copy(update={"switches": switches}).model_dump())
    found = compare(runs, resamples=100).headline
    assert "No effect of post-norm on it can be told (+0.00" in found
    assert "; no effect of FC-norm on it can be told (+0.00" in found


def test_a_switch_that_moves_the_cost_to_another_path_is_said_to(tmp_path: Path) -> None:
    """FC-norm takes a loss through the state away and brings one through attention: the cost stays, its path does not."""
    runs = [
        write_drafter(
            tmp_path / name,
            BASE,
            shards=cost_shards({"state": 0.02 if fc else 0.3, "pattern": 0.3 if fc else 0.02}, unknown=0.3, seed=place),
            fc_norm=fc,
            carry="post" if post else "pre",
        )
        for place, (name, (fc, post)) in enumerate(CORNERS.items())
    ]
    answer = compare(runs, resamples=400).headline.split(". ")[1]
    post, fc = answer.split("; ")
    assert post.startswith("No effect of post-norm on it can be told")
    assert "though" not in post
    assert fc.startswith("no effect of FC-norm on it can be told")
    assert "though it changes what is lost through the carried state (-0.2" in fc
    assert "and through attention (+0.2" in fc


def test_the_paths_add_up_and_the_lengths_are_those_planted(four: Comparison) -> None:
    for run in four.runs:
        parts = [quantity(four, f"cost_{name}").values[run].mean for name in ("state", "pattern", "values")]
        assert sum(parts) == pytest.approx(quantity(four, "drift_cost").values[run].mean, abs=1e-12)
        whole = quantity(four, "undrifted").values[run].mean
        assert whole == pytest.approx(1 + quantity(four, "drift_cost").values[run].mean, abs=1e-12)


def test_reasons_are_compared_and_sum_to_one(four: Comparison) -> None:
    held = [part for part in four.compared if part.quantity.name.startswith("rejected_")]
    assert {"rejected_vocabulary", "rejected_drafter", "rejected_state", "rejected_several"} <= {
        part.quantity.name for part in held
    }
    for run in four.runs:
        assert sum(part.values[run].mean for part in held) == pytest.approx(1.0)
    assert quantity(four, "rejected_state").effect("carry").direction == "down"  # type: ignore[union-attr]
    assert quantity(four, "rejected_vocabulary").effect("carry").direction == "none"  # type: ignore[union-attr]


def trained(folder: Path, corners: dict[str, tuple[bool, bool]], spread: float, seeds: int = 3) -> Comparison:
    """So many trainings of each corner; their luck is `spread` wide, and the growth of a pre-norm carry lasts."""
    rng = np.random.default_rng(5)
    runs = [
        drafter(
            folder / f"{name}-{seed}",
            *corner,
            seed=10 * place + seed,
            worse=float(rng.uniform(0, spread)),
            growth=1.0 if corner[1] else float(1.2 * np.exp(rng.normal(0, 0.02))),
        )
        for place, (name, corner) in enumerate(corners.items())
        for seed in range(seeds)
    ]
    order = rng.permutation(len(runs))
    return compare([runs[place] for place in order], resamples=400)  # type: ignore[misc]


@pytest.fixture(scope="module")
def twelve(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    return trained(tmp_path_factory.mktemp("twelve"), CORNERS, 0.1)


def test_several_trainings_of_a_cell_are_its_seeds(twelve: Comparison) -> None:
    assert twelve.design.kind == "factorial"
    assert twelve.design.seeds == 3
    assert [name.rpartition("-")[0] for name in twelve.runs] == [name for name in CORNERS for _ in range(3)]
    assert twelve.headline.startswith("Over 12 training runs of four kinds of drafter, drift costs 0.1")
    assert " Post-norm lowers that by 0.3" in twelve.headline
    assert twelve.headline.endswith("(the intervals cover prompts and training runs, 3 of each).")
    state = quantity(twelve, "cost_state")
    assert list(state.cells) == ["neither", "FC-norm", "post-norm", "both"]
    assert state.cells["neither"].mean == pytest.approx(
        np.mean([state.values[name].mean for name in twelve.runs[:3]]), abs=1e-9
    )
    assert state.effect("carry").direction == "down"  # type: ignore[union-attr]
    growth = quantity(twelve, "growth")
    assert growth.effect("carry").interval.mean == pytest.approx(1.2**-3, rel=0.05)  # type: ignore[union-attr]


def test_trainings_that_differ_widen_the_interval(twelve: Comparison, tmp_path: Path) -> None:
    def width(found: Comparison) -> float:
        interval = quantity(found, "cost_pattern").effect("fc_norm").interval  # type: ignore[union-attr]
        assert interval.low is not None
        return (interval.high or 0.0) - interval.low

    assert width(trained(tmp_path, CORNERS, 0.6)) > 1.5 * width(twelve)


def test_one_switch_with_several_trainings(tmp_path: Path) -> None:
    found = trained(tmp_path, {"pre": (False, False), "post": (False, True)}, 0.05)
    assert found.design.kind == "one switch"
    assert found.headline.startswith("Over 6 training runs of two kinds of drafter, post-norm lowers ")
    assert quantity(found, "cost_state").sentence.startswith("Post-norm lowers cost through the carried state (-0.3")
    assert list(quantity(found, "growth").cells) == ["neither", "post-norm"]


def test_runs_of_the_same_weights_are_no_seeds(tmp_path: Path) -> None:
    runs = [
        write_drafter(tmp_path / name, BASE, carry=carry) for name, carry in (("a", "pre"), ("b", "post"), ("c", "pre"))
    ]
    runs[2].update(checkpoint=runs[0].info.checkpoint.model_dump())
    assert compare(runs, resamples=50).design.kind == "several"


def test_a_cell_with_one_training_is_noted(tmp_path: Path) -> None:
    runs = [
        write_drafter(tmp_path / name, BASE, carry=carry) for name, carry in (("a", "pre"), ("b", "post"), ("c", "pre"))
    ]
    found = compare(runs, resamples=50)
    assert found.design.kind == "one switch"
    assert any("one training only" in note for note in found.notes)
    assert "1 to 2 of each" in found.headline


def test_json_and_terminal_tell_of_the_cells(twelve: Comparison) -> None:
    content = json.loads(json.dumps(twelve.to_dict(), allow_nan=False))
    assert content["seeds"] == 3
    part = next(part for part in content["quantities"] if part["name"] == "drift_cost")
    assert list(part["cells"]) == ["neither", "FC-norm", "post-norm", "both"]
    console = Console(width=100, record=True, file=open("/dev/null", "w"), markup=False, emoji=False)  # noqa: SIM115
    render_comparison(twelve, console)
    text = console.export_text()
    assert "3 trainings" in text
    assert "interval over training seeds and prompts" in text
    assert max(map(len, text.splitlines())) <= 100
