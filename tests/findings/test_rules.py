"""Every code is found where its cause was planted, and a healthy run has none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from driftscope.findings import DEFAULTS, Assessment, Finding, Thresholds, assess
from driftscope.findings.registry import rules
from driftscope.findings.rules.acceptance import constant_rate_variance
from tests.drafters import HEALTHY, Shard, noise_shards, write_drafter
from tests.fake_run import Fake

DRIFT = Fake(loops=0)


def judge(folder: Path, *args: Any, thresholds: Thresholds = DEFAULTS, **how: Any) -> Assessment:
    return assess(write_drafter(folder, *args, **how), thresholds, resamples=200)


def found(assessment: Assessment, code: str) -> Finding:
    (finding,) = [finding for finding in assessment.findings if finding.code == code]
    return finding


def test_a_healthy_run_has_no_findings_and_lists_what_was_not_asked(tmp_path: Path) -> None:
    result = judge(tmp_path / "a")
    assert result.findings == ()
    assert {part.code for part in result.unmeasured} == {"DS104", "DS106", "DS107", "DS110", "DS111"}
    assert set(result.clear) | {part.code for part in result.unmeasured} == set(rules())
    assert result.exit_code == 0


def test_growth_is_found_with_its_figures(tmp_path: Path) -> None:
    finding = found(judge(tmp_path / "a", HEALTHY.changed(growth=1.2)), "DS101")
    total = finding.evidence[0]
    assert finding.step == 2
    assert total.value == pytest.approx(1.2**7, rel=0.01)
    assert total.low is not None
    assert total.low < total.value < (total.high or 0)
    assert total.over == "16 prompts, 384 anchors"
    assert total.threshold == 1.1
    assert "3.5" in finding.statement
    assert "from step 2 on" in finding.statement


def test_a_flat_norm_under_a_post_norm_carry_is_not_health(tmp_path: Path) -> None:
    def without_attention(shard: Shard, number: int) -> None:
        for table in ("anchors", "heads"):
            columns = [name for name in shard[table] if name.startswith(("mass/", "excess/"))]
            shard[table] = shard[table].drop(columns=columns)

    post = judge(tmp_path / "post", edit=without_attention, carry="post")
    assert "DS101" not in post.clear
    assert "by construction" in next(part.reason for part in post.unmeasured if part.code == "DS101")
    assert post.exit_code == 2
    assert judge(tmp_path / "pre", edit=without_attention).exit_code == 0
    assert judge(tmp_path / "seen", carry="post").exit_code == 0


def test_a_post_norm_carry_that_grows_is_found_and_doubted(tmp_path: Path) -> None:
    finding = found(judge(tmp_path / "a", HEALTHY.changed(growth=1.2), carry="post"), "DS101")
    assert "post-norm carry notwithstanding" in finding.statement
    assert "--carry pre" in finding.advice[0]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"self_shift": 0.4}, ["is displaced", "its own tokens draw +"]),
        ({"sink_shift": -0.5}, ["is displaced", "the sink changes by -"]),
    ],
)
def test_drift_of_attention_is_found_by_each_way(tmp_path: Path, change: dict[str, Any], words: list[str]) -> None:
    finding = found(judge(tmp_path / "a", HEALTHY.changed(**change)), "DS102")
    assert all(word in finding.statement for word in words)
    assert "grows from step to step" in finding.statement
    assert any(part.name.startswith("slope") for part in finding.evidence)


def shifted(by_step: tuple[float, ...]) -> Any:
    """Attention that moves from the sink to the current row by so much at each step, alike in all prompts but for a little."""

    def edit(shard: Shard, number: int) -> None:
        for table in ("anchors", "heads"):
            frame = shard[table]
            shift = np.array(by_step)[frame["step"] - 1] * (1 + 0.02 * (number % 3))
            size = frame["anchors"] if table == "heads" else 1
            for bucket, sign in (("sink", -1), ("current", 1), ("self_generated", 1)):
                for kind in ("mass", "excess"):
                    frame[f"{kind}/{bucket}"] += sign * shift * size

    return edit


def test_one_jump_is_told_from_a_slope(tmp_path: Path) -> None:
    finding = found(judge(tmp_path / "a", edit=shifted((0, *[0.15] * 7))), "DS102")
    assert "all of it in one jump at step 2" in finding.statement


def test_a_rise_that_ends_half_way_does_not_grow_from_step_to_step(tmp_path: Path) -> None:
    early = found(judge(tmp_path / "a", edit=shifted((0, 0.08, 0.12, 0.16, 0.16, 0.16, 0.16, 0.16))), "DS102")
    assert "most of it by step 4" in early.statement
    assert "grows" not in early.statement
    names = [part.name for part in early.evidence]
    assert "slope of displacement, steps 5 to 8" in names
    late = found(judge(tmp_path / "b", edit=shifted((0, 0.08, 0.1, 0.12, 0.14, 0.16, 0.18, 0.2))), "DS102")
    assert "grows from step to step" in late.statement


def aux(rms: tuple[float, ...], share: tuple[float, ...]) -> Any:
    def edit(shard: Shard, number: int) -> None:
        rows = [
            {"prompt": shard["aux"]["prompt"].iloc[0], "index": place, "boundary": 2 + 10 * place, "region": region}
            | {"positions": 20, "sum_rms": 20 * size * scale * (1 + 0.01 * number), "sum_share": 20 * part}
            for place, (size, part) in enumerate(zip(rms, share, strict=True))
            for region, scale in (("continuation", 1.0), ("sink", 1000.0 if place == 0 else 1.0))
        ]
        shard["aux"] = pd.DataFrame(rows)

    return edit


def test_a_dominating_feature_is_found_and_the_sink_left_out(tmp_path: Path) -> None:
    finding = found(judge(tmp_path / "a", edit=aux((3.0, 163.0, 1455.0), (0.1, 0.2, 0.7))), "DS103")
    assert "boundary 22 dominates" in finding.statement
    assert finding.evidence[0].value == pytest.approx(0.7 / 0.15)
    # Both ratios are named in the sentence: the verdict shows the first.
    assert "dominates, 4.67x" in finding.statement
    assert finding.evidence[1].value == pytest.approx(1455 / 83, rel=1e-3)
    assert all(part.threshold == 2.0 for part in finding.evidence[:2])


def test_features_that_fc_evens_out_are_told_so(tmp_path: Path) -> None:
    finding = found(judge(tmp_path / "a", edit=aux((2.8, 6.0, 24.0), (0.31, 0.33, 0.36))), "DS103")
    assert "fc has learned to even them out" in finding.statement
    assert finding.evidence[0].threshold is None


@pytest.mark.parametrize("norm", ["fc_norm", "input_norm"])
def test_a_norm_before_fc_settles_imbalance(tmp_path: Path, norm: str) -> None:
    assert "DS103" in judge(tmp_path / "a", edit=aux((3.0, 163.0, 1455.0), (0.1, 0.2, 0.7)), **{norm: True}).clear


def test_published_features_of_like_scale_are_no_finding(tmp_path: Path) -> None:
    assert "DS103" in judge(tmp_path / "a", edit=aux((0.56, 0.58, 0.78), (0.3, 0.3, 0.4))).clear


def test_fragility_under_noise(tmp_path: Path) -> None:
    finding = found(judge(tmp_path / "weak", shards=noise_shards(0.2)), "DS104")
    assert 0.15 < finding.evidence[0].value < 0.27
    assert finding.evidence[0].threshold == 0.4
    assert "DS104" in judge(tmp_path / "strong", shards=noise_shards(0.7)).clear
    assert "DS104" in judge(tmp_path / "stronger", shards=noise_shards(3.0)).clear
    assert "or less" in found(judge(tmp_path / "none", shards=noise_shards(0.05)), "DS104").statement


def test_noise_that_did_not_go_far_enough_says_nothing(tmp_path: Path) -> None:
    result = judge(tmp_path / "a", shards=noise_shards(3.0, alphas=(0.05, 0.1)))
    assert "the most tried" in next(part.reason for part in result.unmeasured if part.code == "DS104")


def test_collapse_with_depth(tmp_path: Path) -> None:
    def collapse(shard: Shard, number: int) -> None:
        rows = shard["anchors"]
        rows.loc[(rows["feed"] == "text") & (rows["step"] >= 5), "match"] = False

    finding = found(judge(tmp_path / "a", edit=collapse), "DS105")
    assert finding.step == 5
    assert "stays below 50%" in finding.statement


def test_the_depth_probe_is_read_where_it_ran(tmp_path: Path) -> None:
    from tests.fake_run import tables

    deep = HEALTHY.changed(depth=12, variant="depth")

    def shards(prompt: str, number: int) -> dict[str, Shard]:
        content = tables(deep, number)
        rows = content["anchors"]
        rows.loc[(rows["feed"] == "text") & (rows["step"] >= 10), "match"] = False
        return {"depth": {name: content[name] for name in ("anchors", "heads")}}

    assert found(judge(tmp_path / "a", shards=shards), "DS105").step == 10


def lengths(shard: Shard, counts: np.ndarray) -> None:
    """Accept `counts[anchor]` tokens from each anchor."""
    rows = shard["anchors"]
    accepted = rows["step"].to_numpy() <= counts[rows["anchor"].to_numpy() - 9]
    rows["accepted"] = rows["match"] = accepted


def test_rounds_that_accept_all_or_nothing_are_too_variable(tmp_path: Path) -> None:
    finding = found(
        judge(tmp_path / "a", edit=lambda s, n: lengths(s, np.where(np.arange(24) % 16 < 9, 8, 0))), "DS108"
    )
    assert finding.evidence[0].value > 1.25
    assert "a tenth accepts 0 or fewer" in finding.statement
    assert "8 or more" in finding.statement


def test_a_constant_rate_is_not_too_variable(tmp_path: Path) -> None:
    def geometric(shard: Shard, number: int) -> None:
        lengths(shard, np.minimum(np.random.default_rng(number).geometric(0.5, 24) - 1, 8))

    assert "DS108" in judge(tmp_path / "a", HEALTHY.changed(prompts=24), edit=geometric).clear


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_the_spread_of_a_constant_rate(rate: float) -> None:
    draws = np.minimum(np.random.default_rng(0).geometric(1 - rate, 200_000) - 1, 8)
    assert constant_rate_variance(draws.mean(), 8) == pytest.approx(draws.var(), rel=0.02)


def test_no_spread_is_left_at_the_ends() -> None:
    assert np.isnan(constant_rate_variance(np.array([0.0, 8.0]), 8)).all()


def mark(column: str, share: float) -> Any:
    def edit(shard: Shard, number: int) -> None:
        rows = shard["anchors"]
        marked = rows["anchor"] - 9 < share * 24
        rows[column] = rows[column].where(~marked) if column == "rank" else rows[column] | marked

    return edit


@pytest.mark.parametrize(
    ("code", "column", "share", "words"),
    [
        ("DS301", "loop", 0.25, "25% of anchors (96 of 384)"),
        ("DS302", "rank", 0.25, "75.0% of the text's tokens"),
        ("DS304", "near_tie", 0.5, "50% of anchors (192 of 384)"),
    ],
)
def test_notes_on_the_text(tmp_path: Path, code: str, column: str, share: float, words: str) -> None:
    result = judge(tmp_path / "a", edit=mark(column, share))
    assert words in found(result, code).statement
    assert result.exit_code == 0


def test_the_ceiling_stops_at_the_first_token_outside_the_vocabulary(tmp_path: Path) -> None:
    def outside(shard: Shard, number: int) -> None:
        rows = shard["anchors"]
        odd = rows["anchor"] % 2 == 1
        rows["rank"] = rows["rank"].where(
            ~(((rows["step"] == 3) & odd) | ((rows["step"] == 1) & (rows["anchor"] == 10)))
        )

    ceiling = found(judge(tmp_path / "a", edit=outside), "DS302").evidence[1]
    assert ceiling.value == pytest.approx((12 * 2 + 11 * 8 + 0) / 24)


def test_few_prompts_are_a_note_and_no_verdict(tmp_path: Path) -> None:
    result = judge(tmp_path / "a", DRIFT.changed(prompts=3))
    assert {finding.code for finding in result.findings} == {"DS303"}
    assert {"DS101", "DS102", "DS105", "DS108"} <= {part.code for part in result.unmeasured}
    assert result.exit_code == 2


def test_prompts_left_out_and_a_target_without_a_sink(tmp_path: Path) -> None:
    result = judge(tmp_path / "a", provenance={"skipped_prompts": {"too_long": 3, "short_continuation": 5}}, sinks=())
    assert found(result, "DS305").statement == "8 of 24 prompts were left out: 3 too long, 5 short continuation."
    assert found(result, "DS306")
    assert result.exit_code == 0


def test_an_empty_run_says_nothing(tmp_path: Path) -> None:
    result = judge(tmp_path / "a", HEALTHY.changed(prompts=0))
    assert result.findings == ()
    assert result.exit_code == 2


@pytest.mark.parametrize("column", ["rms/carry", "rank"])
def test_what_was_not_recorded_is_not_healthy(tmp_path: Path, column: str) -> None:
    def drop(shard: Shard, number: int) -> None:
        shard["anchors"] = shard["anchors"].drop(columns=[column])

    code = {"rms/carry": "DS101", "rank": "DS302"}[column]
    result = judge(tmp_path / "a", edit=drop)
    assert code not in result.clear
    assert code in {part.code for part in result.unmeasured}


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [("norm_growth", 5.0, "DS101"), ("displacement", 0.9, "DS102"), ("vocabulary_coverage", 0.5, "DS302")],
)
def test_a_threshold_silences_its_code(tmp_path: Path, name: str, value: float, code: str) -> None:
    limits = Thresholds({name: value, "self_excess": 0.9, "sink_loss": 0.9} if code == "DS102" else {name: value})
    fake = HEALTHY.changed(growth=1.2, self_shift=0.3)
    assert code in judge(tmp_path / "a", fake, edit=mark("rank", 0.1), thresholds=limits).clear
    assert found(judge(tmp_path / "b", fake, edit=mark("rank", 0.1)), code)
