"""Frames hold the figures of the summary, and figures by site, key, head and length as they are defined."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from driftscope.probes.held import probe_figures
from driftscope.runs.run import Run
from driftscope.show import frames
from driftscope.show.frames import probes
from driftscope.show.frames.measured import probe_figures_of as figures_of
from driftscope.show.frames.measured import probe_rows, sentences
from tests.fake_run import meta, prompt_ids, tables
from tests.rich_run import AUX, DRIFT, HEAD_WIDTH, SITES, WIDTH, calm, drifting, unmeasured


def one(frame: pd.DataFrame, **where: object) -> pd.Series:
    for name, value in where.items():
        frame = frame[frame[name] == value]
    assert len(frame) == 1
    return frame.iloc[0]


def rewritten(folder: Path, change: object) -> Run:
    """The small run with its anchors changed."""
    run = Run.create(folder, **meta(DRIFT))
    for number, name in enumerate(prompt_ids(DRIFT)):
        shard = tables(DRIFT, number)
        shard["anchors"] = change(shard["anchors"])  # type: ignore[operator]
        run.write_shard("clean", name, {"anchors": shard["anchors"]})
    return run


def test_step_figures_are_those_of_the_summary() -> None:
    frame = frames.step_figures([drifting()])
    for step in drifting().summary()["steps"]:
        for name in ("growth", "displacement", "carry_rms"):
            row = one(frame, step=step["step"], quantity=name)
            assert {key: row[key] for key in ("mean", "low", "high")} == step[name]
        row = one(frame, step=step["step"], quantity="mass", bucket="sink")
        assert row["mean"] == step["mass"]["sink"]["mean"]
        assert row["count"] == step["acceptance"]["anchors"]
        row = one(frame, step=step["step"], quantity="conditional")
        assert row["count"] == step["acceptance"]["conditional_denominator"]
    assert set(frame["prompts"]) == {DRIFT.prompts}


def test_what_was_not_measured_is_nan_and_keeps_its_row(tmp_path: Path) -> None:
    rare = DRIFT.changed(acceptance=0.2)
    run = Run.create(tmp_path / "rare", **meta(rare))
    for number, name in enumerate(prompt_ids(rare)):
        run.write_shard("clean", name, tables(rare, number))
    frame = frames.step_figures([run])
    row = one(frame, quantity="conditional", step=5)
    assert row["count"] < 20
    assert np.isnan([row["mean"], row["low"], row["high"]]).all()


def test_onsets_of_the_summary_or_as_given() -> None:
    found = frames.onsets([drifting(), calm()])
    assert dict(found[found["run"] == "eagle3"][["key", "step"]].to_numpy()) == drifting().summary()["onset"]
    given = frames.onsets([drifting()], found=[{"norm_up": 4, "self_up": "none"}])
    assert given.drop(columns=["low", "high"]).to_dict("records") == [
        {"run": "eagle3", "key": "norm_up", "name": "norm up", "step": 4}
    ]
    assert given[["low", "high"]].isna().all(axis=None)
    spread = {"norm_up": {"step": 4, "low": 3, "high": None}}
    known = frames.onsets([drifting()], found=[{"norm_up": 4}], spreads=[spread])
    assert known["low"].tolist() == [3.0]
    assert known["high"].isna().all()


def test_labels_tell_runs_apart() -> None:
    assert list(frames.labelled([drifting(), calm()])) == ["eagle3", "eagle3.1"]
    assert list(frames.labelled([drifting(), drifting()])) == ["pre", "pre (2)"]


def test_target_norms_keep_sinks_apart_and_runs_on_one_target_together() -> None:
    frame = frames.layer_norms([drifting(), calm()])
    assert set(frame["run"]) == {"fake/target"}
    sizes = 0.2 * 1.4**4 * (1 + 0.01 * np.arange(DRIFT.prompts))
    row = one(frame, boundary=4, region="prompt")
    assert row["mean"] == pytest.approx(sizes.mean())
    assert row["count"] == 9 * DRIFT.prompts
    assert one(frame, boundary=4, region="sink")["mean"] == pytest.approx(60 * sizes.mean())
    assert set(frame.loc[frame["aux"], "boundary"]) == set(AUX)
    assert one(frames.layer_norms([drifting()], "l2"), boundary=4, region="prompt")["mean"] == pytest.approx(
        sizes.mean() * WIDTH**0.5
    )


def test_aux_features_add_up_the_regions_that_are_no_sink() -> None:
    frame = frames.aux_norms([drifting()])
    row = one(frame, boundary=AUX[2], region="other", quantity="share")
    assert (row["mean"], row["count"]) == (pytest.approx(0.5), 29 * DRIFT.prompts)
    assert one(frame, boundary=AUX[0], region="sink", quantity="raw")["mean"] == pytest.approx(
        40 * (1 + 0.02 * np.arange(DRIFT.prompts)).mean()
    )
    assert set(frame["quantity"]) == {"raw", "normed", "share"}


def test_sites_are_in_order_of_computation_and_scaled_by_their_width() -> None:
    size, l2 = frames.site_norms([drifting()]), frames.site_norms([drifting()], unit="l2")
    assert list(dict.fromkeys(size["site"])) == [
        "fused",
        "state",
        "embed",
        "layers.0.q",
        "layers.0.mlp_update",
        "final_norm",
        "carry",
    ]
    for site, width in (("layers.0.q", HEAD_WIDTH), ("state", WIDTH)):
        plain = one(size, site=site, step=1)["mean"]
        assert plain == pytest.approx(SITES[site], rel=0.05)
        assert one(l2, site=site, step=1)["mean"] == pytest.approx(plain * width**0.5)
    assert np.isnan(one(size, site="fused", step=2)["mean"])


def test_the_carry_stands_behind_the_rows_before_its_chain() -> None:
    frame = frames.carry_norms([drifting()], before=2)
    assert frame["step"].tolist() == [-1, 0, 1, 2, 3, 4, 5]
    assert frame["where"].tolist()[:3] == ["prefill row t-2", "prefill row t-1", "step 1"]
    rows = drifting().table("anchors", "clean").query("feed == 'drafted'").astype({"prompt": str})
    first = rows[rows["step"] == 1].set_index(["prompt", "anchor"])
    kept = first[~first["loop"]]
    for back in (1, 2):
        before = [(prompt, anchor - back) for prompt, anchor in kept.index if (prompt, anchor - back) in first.index]
        mean = first.loc[before, "rms/carry"].groupby(level=0).mean().mean()
        row = one(frame, step=1 - back)
        assert row["mean"] == pytest.approx(mean, rel=1e-6)
        assert row["count"] == len(before) < len(kept)
    sizes = frames.site_norms([drifting()])
    same = sizes[sizes["site"] == "carry"].set_index("step")["mean"]
    assert frame[frame["step"] > 0].set_index("step")["mean"].to_dict() == pytest.approx(same.to_dict())
    l2 = frames.carry_norms([drifting()], "l2", before=2)
    np.testing.assert_allclose(l2["mean"], frame["mean"] * np.sqrt(WIDTH))


def test_without_neighbours_only_the_steps_are_there(tmp_path: Path) -> None:
    run = rewritten(tmp_path / "run", lambda anchors: anchors[anchors["anchor"] % 5 == 0])
    assert frames.carry_norms([run])["step"].min() == 1


def test_matched_sites_compare_the_same_position(tmp_path: Path) -> None:
    """A site whose size depends on nothing but the position grows over step 1, and not against no drafting."""

    def change(rows: pd.DataFrame) -> pd.DataFrame:
        position = rows["anchor"] + rows["step"] - 1
        return rows.drop(columns=["rms/carry", "matched_growth"]).assign(**{"rms/state": 1.1**position})

    run = rewritten(tmp_path / "position", change)
    growth, matched = frames.site_norms([run], "growth"), frames.site_norms([run], "matched")
    assert one(growth, site="state", step=4)["mean"] == pytest.approx(1.1**3)
    row = one(matched, site="state", step=4)
    assert row["mean"] == pytest.approx(1.0)
    # The last three anchors have no partner; two of them lie in a loop and do not count anyway.
    assert row["count"] == (DRIFT.anchors - max(3, DRIFT.loops)) * DRIFT.prompts


def test_matched_carry_is_the_stored_figure() -> None:
    matched = frames.site_norms([drifting()], "matched")
    for step in drifting().summary()["steps"]:
        row = one(matched, site="carry", step=step["step"])
        assert row["mean"] == pytest.approx(step["matched_growth"]["mean"])


def test_uniform_attention_has_per_key_ratio_1(tmp_path: Path) -> None:
    def change(rows: pd.DataFrame) -> pd.DataFrame:
        step, anchor = rows["step"], rows["anchor"]
        keys = {"sink": 1 + 0 * step, "prompt": 8 + 0 * step, "committed": anchor - 9 + (step > 1)}
        keys |= {"drafted": (step - 2).clip(lower=0), "current": 1 + 0 * step}
        total = sum(keys.values())
        keys["self_generated"] = (keys["drafted"] + keys["current"]).where(step > 1, 0)
        masses = {f"mass/{name}": count / total for name, count in keys.items()}
        return rows.assign(**masses, **{f"keys/{name}": count for name, count in keys.items()})

    frame = frames.per_key([rewritten(tmp_path / "uniform", change)])
    assert np.allclose(frame["mean"].dropna(), 1.0, atol=1e-6)
    # A part without keys has no ratio.
    assert np.isnan(one(frame, bucket="drafted", step=2)["mean"])
    assert np.isfinite(one(frame, bucket="drafted", step=3)["mean"])


def test_heads_are_means_over_anchors_then_prompts() -> None:
    table = drifting().table("heads", probe="clean")
    rows = table[(table["feed"] == "drafted") & (table["head"] == 1) & (table["step"] == 3)]
    expected = (rows["mass/sink"] / rows["anchors"]).mean()
    frame = frames.head_masses([drifting()], 0, 1)
    row = one(frame, quantity="mass", bucket="sink", step=3)
    assert row["mean"] == pytest.approx(expected)
    assert row["low"] < row["mean"] < row["high"]
    assert row["count"] == rows["anchors"].sum()
    ranking = frames.head_ranking([drifting()])
    assert list(ranking["rank"]) == [1, 2, 3]
    assert ranking["mean"].abs().is_monotonic_decreasing
    last = frames.head_masses([drifting()], 0, int(ranking["head"].iloc[0]))
    assert ranking["mean"].iloc[0] == pytest.approx(
        one(last, quantity="excess", bucket="self_generated", step=DRIFT.depth)["mean"]
    )


def test_served_lengths_are_the_rounds_of_the_walk() -> None:
    frame = frames.served_lengths([drifting()])
    assert frame["mean"].sum() == pytest.approx(1.0)
    assert frame["rounds"].sum() == frame["count"].iloc[0]
    mean = (frame["length"] * frame["mean"]).sum()
    assert mean == pytest.approx(drifting().summary()["acceptance_length"]["served"]["mean"])
    shallow = frames.served_lengths([drifting()], depth=2)
    assert shallow["length"].max() == 2
    assert shallow["count"].iloc[0] > frame["count"].iloc[0]


def test_survival_of_every_anchor_is_joint_acceptance() -> None:
    frame = frames.survival([drifting()])
    for step in drifting().summary()["steps"]:
        row = one(frame, step=step["step"], quantity="every anchor")
        assert row["mean"] == pytest.approx(step["acceptance"]["joint"]["mean"])
    assert one(frames.survival([drifting()], depth=2), step=2, quantity="served rounds")["counted"] == "served rounds"


def test_probe_frames_stand_on_the_figures_of_the_probes() -> None:
    figures = probe_figures(drifting())
    for name in ("acceptance", "noise", "pin", "depth", "layers", "template", "length"):
        assert figures_of(drifting(), name) == figures[name]
    noise = probe_rows([drifting()], "noise")
    level = figures["noise"]["sites"]["state"]["levels"][1]
    row = one(noise, site="state", alpha=0.5, step=0, quantity="anchor_mean_kept")
    assert (row["mean"], row["count"]) == (level["anchor_mean_kept"]["mean"], level["anchors"])
    assert one(noise, site="state", alpha=0.5, step=3, quantity="kl")["mean"] == level["steps"][2]["kl"]["mean"]
    half = one(probes.half_points([drifting()]), site="state", quantity="anchor_mean_kept")
    assert half["at"] == figures["noise"]["sites"]["state"]["half_at"]["anchor_mean"]
    beyond = one(probes.half_points([drifting()]), site="embed", quantity="anchor_mean_kept")
    assert np.isnan(beyond["at"])
    assert beyond["said"] == "beyond the range"
    pins = probe_rows([drifting()], "pin")
    assert one(pins, condition="fused", quantity="share_from_magnitude")["mean"] == pytest.approx(
        figures["pin"]["pins"]["fused"]["share_from_magnitude"]["mean"]
    )
    layers = probe_rows([drifting()], "layers")
    assert one(layers, step=2, row="next", boundary=8, quantity="cka")["mean"] == next(
        entry["mean"] for entry in figures["layers"]["steps"][1]["cka"]["next"] if entry["boundary"] == 8
    )
    template = one(probe_rows([drifting()], "template"), condition="no_bos", quantity="length_kept")
    assert template["mean"] == figures["template"]["conditions"]["no_bos"]["length_kept"]["anchor_mean"]["mean"]


def test_lengths_keep_their_policy_and_size() -> None:
    found = figures_of(drifting(), "length")["policies"]["full"][2]
    row = one(probe_rows([drifting()], "length"), policy="full", length=2048, quantity="anchor_mean")
    assert (row["mean"], row["count"]) == (found["length"]["anchor_mean"]["mean"], found["anchors"])
    kept = one(probe_rows([drifting()], "length"), policy="window+sink", length=2048, quantity="length_kept")
    assert (
        kept["mean"]
        > one(probe_rows([drifting()], "length"), policy="full", length=2048, quantity="length_kept")["high"]
    )
    assert len(sentences([drifting()], "length")) == 1


def test_a_run_without_shards_gives_empty_frames() -> None:
    runs = [unmeasured()]
    made = (
        frames.step_figures(runs),
        frames.onsets(runs),
        frames.layer_norms(runs),
        frames.aux_norms(runs),
        frames.site_norms(runs),
        frames.cosines(runs),
        frames.update_ratios(runs),
        frames.per_key(runs),
        frames.head_masses(runs),
        frames.head_ranking(runs),
        frames.served_lengths(runs),
        frames.survival(runs),
        frames.sampling(runs),
        frames.confidence(runs),
        probes.half_points(runs),
        *(probe_rows(runs, name) for name in ("noise", "pin", "depth", "layers", "template", "length")),
    )
    assert [len(frame) for frame in made] == [0] * len(made)
