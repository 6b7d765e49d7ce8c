"""The summary of a run: contract, definitions on planted rows, what is absent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from driftscope.errors import RunError
from driftscope.runs.run import Run
from driftscope.runs.schema import DISJOINT_BUCKETS
from driftscope.runs.summary import acceptance_lengths, counts, feed_figures, head_displacement, summarise
from driftscope.stats import served_walk
from tests.fake_run import NO_DRIFT, Fake, meta, prompt_ids, tables, write_fake_run

FAKE = Fake()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return write_fake_run(tmp_path_factory.mktemp("runs") / "a", FAKE)


@pytest.fixture(scope="module")
def summary(run: Run) -> dict[str, Any]:
    return run.summary()


@pytest.fixture(scope="module")
def rows(run: Run) -> pd.DataFrame:
    frame = run.table("anchors")
    return frame[(frame["feed"] == "drafted") & ~frame["loop"]]


def prompt_mean(rows: pd.DataFrame, column: str, step: int) -> float:
    return float(rows[rows["step"] == step].groupby("prompt")[column].mean().astype(float).mean())


def write(folder: Path, fake: Fake, drop: tuple[str, ...] = ()) -> Run:
    run = Run.create(folder, **meta(fake))
    for number, name in enumerate(prompt_ids(fake)):
        shard = {k: frame.drop(columns=list(drop), errors="ignore") for k, frame in tables(fake, number).items()}
        run.write_shard("clean", name, shard)
    return run


def test_contract(summary: dict[str, Any]) -> None:
    assert list(summary) == [
        "schema_version",
        "checkpoint",
        "target",
        "settings",
        "steps",
        "text_fed_steps",
        "acceptance_length",
        "onset",
        "onset_spread",
        "provenance",
        "probes",
    ]
    # What the clean chains tell beyond their steps; other probes were not run.
    assert list(summary["probes"]) == ["acceptance"]
    assert list(summary["checkpoint"]) == ["path", "sha256", "layout", "switches"]
    assert list(summary["acceptance_length"]) == [
        "anchor_mean",
        "served",
        "served_sd",
        "served_with_bonus",
        "served_by_request",
    ]
    assert list(summary["onset"]) == ["norm_up", "sink_down", "self_up", "displaced"]
    buckets = ["sink", "prompt", "committed", "drafted", "current", "self_generated"]
    for feed in ("steps", "text_fed_steps"):
        assert [step["step"] for step in summary[feed]] == list(range(1, 9))
        step = summary[feed][2]
        assert list(step)[1:] == [
            "carry_rms",
            "growth",
            "matched_growth",
            "mass",
            "excess",
            "displacement",
            "entropy",
            "acceptance",
        ]
        assert list(step["mass"]) == list(step["excess"]) == buckets
        assert list(step["acceptance"]) == ["joint", "anchors", "conditional", "conditional_denominator"]
        assert list(step["growth"]) == ["mean", "low", "high"]


def test_summary_is_json_and_built_once(run: Run, summary: dict[str, Any]) -> None:
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary
    assert run.summary() is summary


def test_masses_sum_to_1_and_step_1_has_no_drift(summary: dict[str, Any]) -> None:
    for step in summary["steps"]:
        disjoint = [figure["mean"] for name, figure in step["mass"].items() if name in DISJOINT_BUCKETS]
        assert sum(disjoint) == pytest.approx(1.0, abs=1e-6)
    first = summary["steps"][0]
    assert first["growth"] == first["matched_growth"] == {"mean": 1.0, "low": 1.0, "high": 1.0}
    assert {figure["mean"] for figure in first["excess"].values()} == {0.0}
    assert first["displacement"]["mean"] == 0.0


def test_figures_follow_their_definitions(summary: dict[str, Any], rows: pd.DataFrame) -> None:
    step = summary["steps"][4]
    assert step["carry_rms"]["mean"] == pytest.approx(prompt_mean(rows, "rms/carry", 5), rel=1e-6)
    assert step["mass"]["sink"]["mean"] == pytest.approx(prompt_mean(rows, "mass/sink", 5), rel=1e-6)
    assert step["entropy"]["mean"] == pytest.approx(2.25)
    wide = rows.pivot_table(index=["prompt", "anchor"], columns="step", values="rms/carry").astype(float)
    growth = np.exp(np.log(wide[5] / wide[1]).groupby(level=0).mean().mean())
    assert step["growth"]["mean"] == pytest.approx(growth, rel=1e-6)
    assert step["growth"]["mean"] == pytest.approx(1.2**4, rel=0.01)
    assert step["growth"]["low"] < step["growth"]["mean"] < step["growth"]["high"]


def test_loops_are_left_out_and_counted(run: Run, summary: dict[str, Any]) -> None:
    # Loop anchors carry a state 100 times too large.
    assert summary["steps"][0]["carry_rms"]["mean"] < 10
    assert summary["steps"][0]["acceptance"]["anchors"] == FAKE.prompts * (FAKE.anchors - FAKE.loops)
    assert counts(run) == {
        "prompts": 16,
        "anchors": FAKE.prompts * FAKE.anchors,
        "loop": FAKE.prompts * FAKE.loops,
        "near_tie": FAKE.prompts,
    }


def test_acceptance_is_a_ratio_of_sums(summary: dict[str, Any], rows: pd.DataFrame) -> None:
    accepted = rows.groupby("step")["accepted"].sum()
    anchors = rows.groupby("step").size()
    for number in (1, 2, 4):
        found = summary["steps"][number - 1]["acceptance"]
        before = accepted.get(number - 1, anchors[1])
        assert found["joint"]["mean"] == pytest.approx(accepted[number] / anchors[number])
        assert found["conditional"]["mean"] == pytest.approx(accepted[number] / before)
        assert found["conditional_denominator"] == before


def test_too_small_a_denominator_leaves_the_ratio_out(summary: dict[str, Any]) -> None:
    last = summary["steps"][7]["acceptance"]
    assert last["conditional_denominator"] < 20
    assert "conditional" not in last


def test_acceptance_lengths(run: Run, summary: dict[str, Any], rows: pd.DataFrame) -> None:
    found = summary["acceptance_length"]
    anchors = rows[rows["step"] == 1]
    assert found["anchor_mean"]["mean"] == pytest.approx(rows["accepted"].sum() / len(anchors))
    drafted = run.table("anchors").query("feed == 'drafted'")
    walks = [
        served_walk(part.groupby("anchor")["accepted"].sum().to_numpy(), 8) for _, part in drafted.groupby("prompt")
    ]
    accepted = np.concatenate([walk.accepted for walk in walks])
    assert found["served"]["mean"] == pytest.approx(accepted.mean())
    assert found["served_sd"] == pytest.approx(accepted.std(ddof=1))
    for end in ("mean", "low", "high"):
        assert found["served_with_bonus"][end] == found["served"][end] + 1
    assert found["served_by_request"]["mean"] == pytest.approx(np.mean([walk.accepted.mean() for walk in walks]))
    assert found["served_by_request"]["mean"] != found["served"]["mean"]


def test_served_walk_needs_consecutive_anchors(run: Run) -> None:
    frame = run.table("anchors").query("feed == 'drafted' and anchor != 12")
    assert list(acceptance_lengths(frame, 8, resamples=50)) == ["anchor_mean"]


def test_depth_limits_steps_and_lengths(run: Run, summary: dict[str, Any]) -> None:
    short = run.summary(3)
    assert len(short["steps"]) == len(short["text_fed_steps"]) == 3
    assert short["steps"] == summary["steps"][:3]
    assert short["acceptance_length"]["served"]["mean"] < summary["acceptance_length"]["served"]["mean"]
    with pytest.raises(RunError, match="holds 8 steps, 9 asked"):
        run.summary(9)


def test_planted_drift_has_onsets(summary: dict[str, Any]) -> None:
    assert summary["onset"] == {"norm_up": 2, "sink_down": 2, "self_up": 2, "displaced": 2}
    assert set(summary["onset_spread"]) == set(summary["onset"])
    for spread in summary["onset_spread"].values():
        assert spread["low"] <= spread["step"] == 2 <= spread["high"]


def test_slow_growth_has_a_later_onset(tmp_path: Path) -> None:
    run = write(tmp_path / "a", NO_DRIFT.changed(growth=1.04))
    found = summarise(run, resamples=200)["onset"]
    # 1.04 ** 3 is the first power above 1.1.
    assert found == {"norm_up": 4, "sink_down": "none", "self_up": "none", "displaced": "none"}


def test_no_drift_has_none(tmp_path: Path) -> None:
    found = summarise(write(tmp_path / "a", NO_DRIFT), resamples=200)["onset"]
    assert set(found.values()) == {"none"}


def test_a_sink_that_is_not_there_cannot_be_lost(tmp_path: Path) -> None:
    fake = Fake(prompts=12, anchors=8)
    run = Run.create(tmp_path / "a", **meta(fake))
    for number, name in enumerate(prompt_ids(fake)):
        shard = tables(fake, number)
        for table in ("anchors", "heads"):
            shard[table] = shard[table].assign(**{"mass/sink": 0.0, "excess/sink": 0.0})
        run.write_shard("clean", name, shard)
    assert summarise(run, resamples=100)["onset"]["sink_down"] == "not measurable"


def test_few_prompts_have_points_without_intervals(tmp_path: Path) -> None:
    found = summarise(write(tmp_path / "a", Fake(prompts=11)), resamples=100)
    growth = found["steps"][3]["growth"]
    assert growth["mean"] > 1
    assert growth["low"] is growth["high"] is None
    assert set(found["onset"].values()) == {"not measurable"}


def test_what_was_not_measured_is_absent(tmp_path: Path) -> None:
    fake = Fake(prompts=3, feeds=("drafted",))
    drop = ("rms/carry", "matched_growth", "entropy", "excess/sink", "excess/self_generated")
    found = summarise(write(tmp_path / "a", fake, drop), resamples=100)
    assert not {"carry_rms", "growth", "matched_growth", "entropy"} & set(found["steps"][0])
    assert "sink" not in found["steps"][0]["excess"]
    assert found["text_fed_steps"] == []
    assert set(found["onset"]) == {"sink_down", "displaced"}


def test_virtual_sink_is_a_bucket_of_its_own(tmp_path: Path) -> None:
    found = summarise(write(tmp_path / "a", Fake(prompts=3, virtual=True)), resamples=100)
    mass = found["steps"][3]["mass"]
    assert mass["virtual"]["mean"] > 0
    assert sum(mass[name]["mean"] for name in DISJOINT_BUCKETS) == pytest.approx(1.0, abs=1e-6)


def test_other_variants_and_probes_do_not_enter(tmp_path: Path) -> None:
    fake = Fake(prompts=3, anchors=6, depth=3)
    run = write(tmp_path / "a", fake)
    before = summarise(run, resamples=50)
    run.write_shard("noise", "chat-00", tables(fake.changed(variant="noise", growth=9.0), 0))
    run.write_shard("depth", "chat-00", tables(fake.changed(growth=9.0), 0))
    assert summarise(run, resamples=50) == before


def test_run_without_shards_has_no_steps(tmp_path: Path) -> None:
    found = Run.create(tmp_path / "a", **meta(FAKE)).summary()
    assert found["steps"] == found["text_fed_steps"] == []
    assert found["acceptance_length"] == found["onset"] == {}


def test_summary_follows_new_shards(tmp_path: Path) -> None:
    fake = Fake(prompts=2, anchors=6, depth=2)
    run = Run.create(tmp_path / "a", **meta(fake))
    for number, name in enumerate(prompt_ids(fake)):
        run.write_shard("clean", name, tables(fake, number))
        assert run.summary()["steps"][0]["acceptance"]["anchors"] == 4 * (number + 1)


def test_rows_in_any_order_give_the_same_figures(run: Run, rows: pd.DataFrame) -> None:
    heads = run.table("heads").query("feed == 'drafted'")
    straight = feed_figures(rows, heads)
    shuffled = feed_figures(rows.sample(frac=1, random_state=0), heads.sample(frac=1, random_state=0))
    assert straight is not None
    assert shuffled is not None
    for name, values in straight.means.items():
        np.testing.assert_allclose(shuffled.means[name], values, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(shuffled.reached, straight.reached)


def test_prompt_with_only_loops_is_left_out(run: Run) -> None:
    frame = run.table("anchors").query("feed == 'drafted'").copy()
    frame["loop"] |= frame["prompt"] == "chat-03"
    figures = feed_figures(frame, run.table("heads").query("feed == 'drafted'"))
    assert figures is not None
    assert "chat-03" not in figures.prompts
    assert all(len(values) == FAKE.prompts - 1 for values in figures.means.values())
    frame["loop"] = True
    assert feed_figures(frame, run.table("heads")) is None


def test_displacement_averages_anchors_before_and_heads_after_the_absolute_value() -> None:
    heads = pd.DataFrame(
        {
            "prompt": ["a", "a", "b", "b"],
            "step": 1,
            "layer": 0,
            "head": [0, 1, 0, 1],
            "anchors": 10,
            "excess/sink": [-4.0, 2.0, -2.0, 1.0],
            "excess/current": [4.0, -2.0, 2.0, -1.0],
            "excess/self_generated": [4.0, -2.0, 2.0, -1.0],
        }
    )
    found = head_displacement(heads, ["a", "b"], 2)
    assert found[:, 0] == pytest.approx([0.3, 0.15])
    assert np.isnan(found[:, 1]).all()
    assert np.isnan(head_displacement(heads[:2], ["a"], 1)).all()


@pytest.mark.parametrize("step", [0, 1.5])
def test_steps_that_no_chain_has_are_told_in_a_line(step: float) -> None:
    rows = {"prompt": ["a"], "step": [step], "layer": [0], "head": [0], "anchors": [4.0], "excess/sink": [0.1]}
    with pytest.raises(RunError, match="steps that no chain has"):
        head_displacement(pd.DataFrame(rows), ["a"], 2)
