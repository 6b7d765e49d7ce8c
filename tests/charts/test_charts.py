"""Charts through their specifications: the figures that are drawn, intervals, onsets, gaps, colours."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import altair as alt
import numpy as np
import pandas as pd
import pytest

from driftscope.compare import compare
from driftscope.runs.run import Run
from driftscope.show import charts, frames
from driftscope.show.chartbook import ChartBook
from driftscope.show.charts import acceptance, attention, norms
from driftscope.show.charts import compare as compare_charts
from driftscope.show.charts.base import lines, run_colour
from driftscope.show.frames import cost as cost_frames
from driftscope.show.frames import probes
from tests.rich_run import DRIFT, calm, drifting, unmeasured

NAMES = (
    "overview",
    "cost",
    "cost_paths",
    "cost_steps",
    "norms",
    "growth",
    "sites",
    "jumps",
    "boundaries",
    "aux",
    "cosines",
    "updates",
    "attention",
    "masses",
    "excess",
    "displacement",
    "per_key",
    "heads",
    "entropy",
    "acceptance",
    "survival",
    "lengths",
    "confidence",
    "noise",
    "pin",
    "depth",
    "rank",
    "layers",
    "template",
    "length",
)
SHAPES = {"mark", "layer", "hconcat", "vconcat", "concat"}


def units(spec: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Every single view of a specification."""
    if "mark" in spec:
        yield spec
    for name in ("layer", "hconcat", "vconcat", "concat"):
        for part in spec.get(name, ()):
            yield from units({"data": spec.get("data"), **part})


def drawn(chart: Any, mark: str) -> list[tuple[dict[str, Any], pd.DataFrame]]:
    """The views with a mark, each with the rows that it draws."""
    spec = chart.to_dict()
    found = []
    for unit in units(spec):
        kind = unit["mark"] if isinstance(unit["mark"], str) else unit["mark"]["type"]
        if kind == mark:
            data = unit["data"]
            rows = spec["datasets"][data["name"]] if "name" in data else data["values"]
            found.append((unit, pd.DataFrame(rows)))
    return found


def rows_of(chart: Any) -> int:
    return max(len(rows) for rows in chart.to_dict()["datasets"].values())


@pytest.fixture(scope="module")
def figures() -> pd.DataFrame:
    return frames.step_figures([drifting()])


@pytest.fixture(scope="module")
def marks() -> pd.DataFrame:
    return frames.onsets([drifting()])


@pytest.mark.parametrize("name", NAMES)
def test_every_chart_is_valid_alone_and_with_several_runs(name: str) -> None:
    for runs, look in (((drifting(),), "dark"), ((drifting(), calm()), "light")):
        spec = getattr(ChartBook(runs, look), name)().to_dict()
        assert SHAPES & set(spec)
        assert max(len(rows) for rows in spec["datasets"].values()) > 1


@pytest.mark.parametrize("name", NAMES)
def test_no_tick_that_was_asked_for_is_left_out(name: str) -> None:
    """Vega thins given values to the count that it would choose itself."""
    for unit in units(getattr(drifting().charts, name)().to_dict()):
        for channel in unit["encoding"].values():
            axis = channel.get("axis") if isinstance(channel, dict) else None
            if axis and axis.get("values"):
                assert axis["tickCount"] >= len(axis["values"])


@pytest.mark.parametrize("name", NAMES)
def test_a_figure_comes_with_its_interval_and_what_it_is_over(name: str) -> None:
    found = 0
    spec = getattr(drifting().charts, name)().to_dict()
    for unit in units(spec):
        tips = unit["encoding"].get("tooltip", ())
        fields = {tip["field"]: tip for tip in tips}
        if "mean" in fields:
            found += 1
            data = unit["data"]
            rows = spec["datasets"][data["name"]] if "name" in data else data["values"]
            # Where no row has an interval, none is shown as "null to null".
            known = any(row.get("low") is not None for row in rows)
            assert {"prompts", *(("low", "high") if known else ())} <= set(fields)
            assert known or name == "heads" or all(row["note"] for row in rows)
            assert fields["mean"]["title"]
            # A share of an axis in percent is one on hover.
            axes = [unit["encoding"][way].get("axis") or {} for way in ("x", "y") if way in unit["encoding"]]
            assert fields["mean"]["format"].endswith("%") == any(axis.get("format") == "%" for axis in axes)
    assert found


@pytest.mark.parametrize("name", NAMES)
def test_what_was_not_recorded_is_said_in_words(name: str) -> None:
    spec = getattr(unmeasured().charts, name)().to_dict()
    assert {unit["mark"]["style"] for unit in units(spec)} == {"note"}


def test_what_is_accepted_at_a_step_and_what_ends_there_make_the_living_chains() -> None:
    rows = cost_frames.ends([drifting()])
    assert np.allclose(rows.groupby("step")["mean"].sum(), 1, rtol=0, atol=1e-12)
    steps = drifting().summary()["rejections"]["steps"]
    for _, row in rows[rows["part"] != "accepted"].iterrows():
        entry = steps[row["step"] - 1]
        assert (row["mean"], row["count"]) == (entry[row["part"]]["mean"], entry["alive"])
    # Step 1 is made from real features: nothing of it has drifted.
    first = rows[rows["step"] == 1].set_index("part")["mean"]
    assert not first.reindex(["state", "pattern", "values", "several"]).fillna(0.0).any()


def test_growth_draws_the_summary_with_intervals_and_onset(figures: pd.DataFrame, marks: pd.DataFrame) -> None:
    chart = norms.growth(figures, marks)
    beside, (line, rows) = drawn(chart, "line")
    assert line["encoding"]["y"]["scale"]["type"] == "log"
    for step in drifting().summary()["steps"]:
        row = rows[(rows["step"] == step["step"]) & (rows["quantity"] == "growth")].iloc[0]
        assert (row["mean"], row["low"], row["high"]) == tuple(step["growth"].values())
    # What is compared with stands behind, broader, so that the two can coincide.
    assert set(beside[1]["quantity"]) == {"matched_growth"}
    assert beside[0]["mark"]["strokeWidth"] > line["mark"]["strokeWidth"]
    band, _ = drawn(chart, "area")[-1]
    assert (band["encoding"]["y"]["field"], band["encoding"]["y2"]["field"]) == ("low", "high")
    rule = next(rows for unit, rows in drawn(chart, "rule") if unit["mark"]["style"] == "onset-rule")
    assert list(rule["step"]) == [drifting().summary()["onset"]["norm_up"]]
    ((_, label),) = drawn(chart, "text")
    assert list(label["text"]) == ["norm up from step 2"]
    ((_, label),) = drawn(norms.growth(figures, marks.assign(low=2.0, high=5.0)), "text")
    assert list(label["text"]) == ["norm up from step 2 (2 to 5)"]


def test_hover_tells_interval_and_denominator(figures: pd.DataFrame) -> None:
    (points, rows), *few = drawn(acceptance.acceptance(figures), "point")
    assert all(part["low"].isna().all() and part["note"].all() for _, part in few)
    fields = [tip["field"] for tip in points["encoding"]["tooltip"]]
    assert {"step", "mean", "low", "high", "count", "counted", "prompts"} <= set(fields)
    assert set(rows["counted"]) == {"anchors", "chains that reached the step"}


def test_a_gap_where_nothing_was_measured(figures: pd.DataFrame) -> None:
    lacking = figures.copy()
    hole = (lacking["quantity"] == "growth") & (lacking["step"] == 3)
    lacking.loc[hole, ["mean", "low", "high"]] = np.nan
    chart = norms.growth(lacking)
    line, rows = drawn(chart, "line")[-1]
    row = rows[(rows["step"] == 3) & (rows["quantity"] == "growth")].iloc[0]
    assert row["mean"] is None or np.isnan(row["mean"])
    assert line["mark"]["invalid"].startswith("break-paths")
    band, _ = drawn(chart, "area")[-1]
    assert band["mark"]["invalid"].startswith("break-paths")


def test_a_bucket_has_one_colour_everywhere(figures: pd.DataFrame) -> None:
    no_sink = figures[figures["bucket"] != "sink"]
    for rows in (figures, no_sink):
        for chart in (attention.stacked(rows), attention.masses(rows, split=True), attention.excess(rows)):
            scales = [
                unit["encoding"]["color"]["scale"]
                for unit in units(chart.to_dict())
                if "scale" in unit["encoding"].get("color", {})
            ]
            for scale in scales:
                colours = dict(zip(scale["domain"], scale["range"], strict=True))
                expected = {charts.BUCKET_NAMES[name]: colour for name, colour in charts.BUCKET_COLOURS.items()}
                assert colours == {name: expected[name] for name in colours}


def test_stacked_buckets_are_disjoint_and_fill_each_step(figures: pd.DataFrame) -> None:
    ((bar, rows),) = drawn(attention.stacked(figures), "bar")
    assert bar["encoding"]["y"]["stack"] == "zero"
    assert "self_generated" not in set(rows["bucket"])
    assert np.allclose(rows.groupby("step")["mean"].sum(), 1.0)


def test_excess_smaller_than_what_counts_does_not_fill_the_axis(figures: pd.DataFrame) -> None:
    tiny = figures.copy()
    tiny.loc[tiny["quantity"] == "excess", ["mean", "low", "high"]] *= 1e-3
    ((line, _),) = drawn(attention.excess(tiny), "line")
    low, high = line["encoding"]["y"]["scale"]["domain"]
    assert low < -0.05
    assert high > 0.05


def test_heat_map_cells_are_the_frame_and_ratios_stand_around_1() -> None:
    frame = frames.site_norms([drifting()], "matched")
    chart = norms.sites(frame, "matched")
    ((cells, rows),) = drawn(chart, "rect")
    assert len(rows) == frame["mean"].notna().sum()
    low, high = cells["encoding"]["color"]["scale"]["domain"]
    assert cells["encoding"]["color"]["scale"]["type"] == "log"
    assert low * high == pytest.approx(1.0)
    assert cells["encoding"]["y"]["sort"][0] == "fused"


def test_runs_are_overlaid_or_side_by_side() -> None:
    runs = [drifting(), calm()]
    figures, marks = frames.step_figures(runs), frames.onsets(runs)
    ((line, rows),) = drawn(norms.growth(figures, marks), "line")
    assert set(rows["run"]) == {"eagle3", "eagle3.1"}
    assert line["encoding"]["color"]["scale"]["domain"] == ["eagle3", "eagle3.1"]
    beside = attention.masses(figures, marks).to_dict()
    assert [part["title"] for part in beside["hconcat"]] == ["eagle3", "eagle3.1"]
    assert beside["resolve"]["scale"]["y"] == "shared"
    # Each panel marks the onset of its own run.
    for part in beside["hconcat"]:
        own = marks[(marks["run"] == part["title"]) & (marks["key"] == "sink_down")]
        rules = [unit for unit in units(part) if unit["mark"].get("style") == "onset-rule"]
        assert len(rules) == len(own)


def test_heads_stand_strongest_first_and_few_rows_are_sent() -> None:
    cells = frames.head_masses([drifting()], kinds=["excess"], buckets=["self_generated"], intervals=False)
    ranking = frames.head_ranking([drifting()])
    chart = attention.heads(cells, ranking, top=2)
    ((grid, rows),) = drawn(chart, "rect")
    assert grid["encoding"]["y"]["sort"] == [f"layer 0, head {head}" for head in ranking["head"][:2]]
    assert len(rows) == 2 * DRIFT.depth
    ((points, beside),) = drawn(chart, "point")
    assert list(beside["mean"]) == list(ranking["mean"][:2])
    assert "p_value" in {tip["field"] for tip in points["encoding"]["tooltip"]}


def test_one_heads_masses_are_its_own() -> None:
    frame = frames.head_masses([drifting()], 0, 2)
    ((_, rows),) = drawn(drifting().charts.head(0, 2), "line")
    sink = rows[rows["bucket"] == "sink"].set_index("step")["mean"]
    expected = frame[(frame["quantity"] == "mass") & (frame["bucket"] == "sink")].set_index("step")["mean"]
    assert list(sink) == list(expected)


def test_lengths_have_error_bars_and_shares() -> None:
    frame = frames.served_lengths([drifting()])
    chart = acceptance.lengths(frame)
    ((_, bars),) = drawn(chart, "bar")
    assert list(bars["mean"]) == list(frame["mean"])
    ((bar, _),) = drawn(chart, "rule")
    assert (bar["encoding"]["y"]["field"], bar["encoding"]["y2"]["field"]) == ("low", "high")


def test_noise_starts_at_1_without_noise_and_marks_the_half_point() -> None:
    chart = drifting().charts.noise()
    (_, rows), *_ = drawn(chart, "line")
    assert rows[rows["alpha"] == 0]["mean"].tolist() == [1.0]
    halves = probes.half_points([drifting()])
    crosses = [rows for unit, rows in drawn(chart, "point") if unit["mark"].get("shape") == "cross"]
    assert [rows["at"].tolist() for rows in crosses] == [
        [halves[(halves["site"] == "state") & (halves["quantity"] == "anchor_mean_kept")]["at"].iloc[0]]
    ]


def test_collapse_is_marked() -> None:
    collapses = probes.collapses([drifting()])
    chart = drifting().charts.depth()
    rules = [rows for unit, rows in drawn(chart, "rule") if unit["mark"].get("style") == "onset-rule"]
    assert [step for rows in rules for step in rows["step"]] == list(collapses["step"])


def test_compared_runs_keep_their_colours() -> None:
    found = compare([drifting(), calm()], resamples=200)
    values = compare_charts.values(found.values_frame())
    differences = compare_charts.differences(found.differences_frame())
    for chart in (values, differences):
        scales = [unit["encoding"]["color"]["scale"] for unit in units(chart.to_dict()) if "color" in unit["encoding"]]
        assert {tuple(scale["domain"]) for scale in scales} == {found.runs}
    drawn_means = {row for _, rows in drawn(differences, "point") for row in rows["mean"]}
    assert drawn_means == set(found.differences_frame()["mean"])


def test_a_look_changes_marks_that_no_data_colours(figures: pd.DataFrame, marks: pd.DataFrame) -> None:
    chart = norms.growth(figures, marks)
    light, dark = (charts.themed(chart, look).to_dict()["config"] for look in ("light", "dark"))
    for style in ("onset-rule", "onset-label", "reference"):
        assert light["style"][style]["color"] != dark["style"][style]["color"]
    assert light["background"] != dark["background"]
    assert charts.spec(chart)["config"] == {}


def test_log_axes_hold_everything_with_few_round_labels() -> None:
    for ends in ((0.9, 1.1), (1.0, 3.6), (0.02, 1500.0), (1.0, 1.0)):
        frame = pd.DataFrame({"run": "a", "step": [1, 2], "mean": ends, "low": ends, "high": ends})
        chart = lines(frame, "size", run_colour(["a"]), log=True)
        ((line, _),) = drawn(chart, "line")
        low, high = line["encoding"]["y"]["scale"]["domain"]
        assert low < min(ends)
        assert high > max(ends)
        ticks = line["encoding"]["y"]["axis"]["values"]
        assert 3 <= len(ticks) <= 12
        assert all(low <= tick <= high for tick in ticks)


def test_a_large_run_stays_within_what_altair_takes() -> None:
    steps, heads, layers = range(1, 17), range(64), range(2)
    index = pd.MultiIndex.from_product(
        [["a", "b", "c", "d"], layers, heads, steps], names=["run", "layer", "head", "step"]
    )
    cells = index.to_frame(index=False).assign(
        mean=0.1,
        low=np.nan,
        high=np.nan,
        count=1,
        counted="anchors",
        prompts=48,
        quantity="excess",
        bucket="self_generated",
    )
    ranking = cells[cells["step"] == 16].assign(p_value=0.5)
    ranking["rank"] = ranking.groupby("run").cumcount() + 1
    chart = attention.heads(cells, ranking)
    assert rows_of(chart) < 5000
    with alt.data_transformers.enable(consolidate_datasets=True):
        assert rows_of(chart) <= 24 * 16


def test_run_charts_are_made_once() -> None:
    run: Run = drifting()
    assert run.charts is run.charts
