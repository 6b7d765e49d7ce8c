"""What drift costs, as the verdict, the rules and the causes tell it; the figures are made up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from driftscope.findings import DEFAULTS, Assessment, Finding, assess
from driftscope.findings.causes import causes_of
from driftscope.findings.cost import DriftCost, told
from driftscope.findings.model import exit_code
from driftscope.findings.verdict import verdict
from driftscope.stats.intervals import Interval
from tests.drafters import HEALTHY, write_drafter
from tests.fake_summary import cost_figures, drifting, interval, summary

MOVES = {"norm_up": 2, "displaced": 2}
BOTH = cost_figures(0.739, (0.132, 0.06), state=(0.083, 0.04), pattern=(0.041, 0.02), values=(0.008, 0.01))
ATTENTION = cost_figures(0.739, (0.092, 0.06), state=(0.039, 0.08), pattern=(0.045, 0.02), values=(0.008, 0.01))
UNTOLD = cost_figures(0.898, (0.025, 0.06), state=(0.02, 0.05), pattern=(-0.003, 0.045), values=(0.008, 0.01))
NONE = cost_figures(0.898, (0.005, 0.02), state=(0.0, 0.02), pattern=(0.0, 0.02), values=(0.0, 0.01))
TOGETHER = cost_figures(
    1.143, (0.139, 0.1), state=(0.162, 0.08), pattern=(-0.05, 0.044, -0.2, 0.07), values=(0.027, 0.03)
)


def said(cost: dict[str, Any], figures: dict[str, Any] | None = None) -> Any:
    return verdict((figures or drifting(**MOVES)) | {"drift_cost": cost})


def test_the_cost_comes_first_then_what_moves() -> None:
    found = said(ATTENTION)
    assert found.kind == "drift"
    assert found.headline == (
        "0.74 of 8 drafted tokens are accepted, 0.83 would be without drift: drift costs 0.09 (95% 0.03 to 0.15), about half"
        " of it through attention (0.04, 95% 0.02 to 0.07). From step 2 the carried state's norm grows (3.58x at step 8) and"
        " attention is displaced (0.21 of it at step 8). The growth costs nothing that can be told: attention does."
    )


def test_the_cost_alone_is_a_verdict() -> None:
    found = verdict(summary([]) | {"drift_cost": ATTENTION})
    assert found.kind == "drift"
    assert found.headline.startswith("0.74 of the drafted tokens are accepted, 0.83 would be without drift")
    assert found.headline.endswith("What moves was not measured: probe norms and attention too.")


def test_paths_are_named_dearest_first() -> None:
    headline = said(BOTH).headline
    assert "most of it through the carried state (0.08" in headline
    assert "and part of it through attention (0.04" in headline
    assert "costs nothing" not in headline


def test_attention_that_moves_for_nothing_is_said_to() -> None:
    cost = cost_figures(1.0, (0.1, 0.05), state=(0.1, 0.05), pattern=(0.0, 0.01), values=(0.0, 0.01))
    headline = said(cost).headline
    assert "That attention moves costs nothing that can be told: the carried state does." in headline


def test_a_cost_that_cannot_be_told_says_how_many_prompts_would_tell() -> None:
    found = said(UNTOLD)
    assert found.kind == "unknown"
    assert (
        "no cost of drift can be told (+0.03, 95% -0.03 to +0.08); about 150 prompts would tell one of 0.05"
        in found.headline
    )
    assert "Neither costs anything that can be told." in found.headline


def test_a_cost_below_the_practical_size_is_none() -> None:
    found = said(NONE)
    assert found.kind == "none"
    assert "drift costs less than 0.05 (+0.01, 95% -0.01 to +0.03)" in found.headline


def test_factors_that_work_together_get_a_sentence_and_no_single_number() -> None:
    headline = said(TOGETHER).headline
    assert (
        "Attention and the rest work together: with it alone made real 0.20 (95% 0.16 to 0.24) fewer, with it made real"
        " last 0.07 (95% 0.03 to 0.11) more." in headline
    )
    assert "-0.05" not in headline
    assert "That attention moves costs nothing" not in headline


def test_signs_that_are_not_known_are_no_sign_of_working_together() -> None:
    cost = cost_figures(1.0, (0.1, 0.05), state=(0.1, 0.05), pattern=(0.0, 0.05, -0.01, 0.01), values=(0.0, 0.01))
    assert "together" not in said(cost).headline


def test_a_cost_without_a_path_claims_none() -> None:
    cost = cost_figures(1.143, (0.1, 0.05), state=(0.05, 0.06), pattern=(0.05, 0.06), values=(0.0, 0.01))
    headline = said(cost).headline
    assert "through which path cannot be told" in headline
    assert "costs nothing" not in headline
    assert "Neither" not in headline


def test_chains_that_gain_by_drift_cost_nothing() -> None:
    cost = cost_figures(1.1, (-0.1, 0.05), state=(-0.1, 0.05), pattern=(0.0, 0.01), values=(0.0, 0.01))
    found = said(cost)
    assert found.kind == "none"
    assert "drift costs nothing, 0.10 more are accepted with it (95% 0.05 to 0.15)" in found.headline


def test_without_intervals_no_cost_is_told() -> None:
    cost = cost_figures(1.1, (0.1, None), state=(0.1, None), pattern=(0.0, None), values=(0.0, None))
    found = said(cost)
    assert found.kind == "unknown"
    assert "fewer than 12 prompts give no interval" in found.headline


def test_nothing_moves_and_the_cost_is_told_all_the_same() -> None:
    headline = said(NONE, summary()).headline
    assert headline.startswith("0.90 of 8 drafted tokens")
    assert "No drift found up to step 8" in headline


def test_a_block_has_a_price_and_no_drift() -> None:
    cost = cost_figures(1.1, (0.3, 0.05))
    found = said(cost, summary(carry="none"))
    assert "the price of drafting in one block is 0.30 (95% 0.25 to 0.35) tokens" in found.headline
    assert "drift costs" not in found.headline


def test_without_the_probe_nothing_is_claimed_of_the_cost() -> None:
    assert verdict(drifting(**MOVES)).headline.endswith("; what that costs was not measured.")
    assert DriftCost.from_summary(summary()) is None


@pytest.mark.parametrize(
    ("figure", "word"),
    [
        (Interval(0.1, 0.01, 0.2), "costs"),
        (Interval(-0.1, -0.2, -0.01), "gains"),
        (Interval(0.01, -0.02, 0.04), "nothing"),
        (Interval(0.01, -0.02, 0.06), "unknown"),
        (Interval(0.1), "few"),
    ],
)
def test_what_an_interval_tells(figure: Interval, word: str) -> None:
    assert told(figure) == word


REASONS = {"drafter": 0.6, "vocabulary": 0.15, "target_undecided": 0.05, "state": 0.1, "pattern": 0.05, "values": 0.02}
SHARES = {name: interval(share, 0.02) for name, share in (REASONS | {"several": 0.03}).items()}


def judged(folder: Path, monkeypatch: pytest.MonkeyPatch, cost: dict[str, Any], **more: Any) -> Assessment:
    """Of a drafter that grows and whose attention moves, with these figures in its summary."""
    run = write_drafter(folder, HEALTHY.changed(growth=1.2, self_shift=0.4))
    figures = run.summary() | {"drift_cost": cost, **more}
    monkeypatch.setattr(type(run), "summary", lambda self, depth=None: figures)
    return assess(run, DEFAULTS, resamples=200)


def by_code(assessment: Assessment) -> dict[str, Finding]:
    return {finding.code: finding for finding in assessment.findings}


def test_what_costs_is_found_and_what_does_not_is_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = by_code(judged(tmp_path / "a", monkeypatch, ATTENTION))
    assert found["DS101"].kind == "note"
    assert "that costs nothing that can be told: +0.04 (95% -0.04 to +0.12) accepted tokens" in found["DS101"].statement
    assert found["DS102"].kind == "drift"
    assert "drift costs 0.04 (95% 0.02 to 0.07) accepted tokens through attention" in found["DS102"].statement
    assert found["DS110"].kind == "drift"
    assert "drift costs 0.09" in found["DS110"].statement
    assert "cost through attention, patched last" in [part.name for part in found["DS110"].evidence]


def test_drift_that_costs_nothing_is_healthy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = judged(tmp_path / "a", monkeypatch, NONE)
    assert result.wrong == ()
    assert result.exit_code == 0
    assert {"DS101", "DS102"} <= set(by_code(result))
    assert "DS110" in result.clear
    content = json.loads(json.dumps(result.to_dict()))["findings"]
    assert exit_code(content) == 0
    assert [Finding.from_dict(part) for part in content] == list(result.findings)


def test_without_the_probe_what_moves_is_found_and_worded_so(tmp_path: Path) -> None:
    result = assess(write_drafter(tmp_path / "a", HEALTHY.changed(growth=1.2, self_shift=0.4)), DEFAULTS, resamples=200)
    found = by_code(result)
    for code in ("DS101", "DS102"):
        assert found[code].kind == "drift"
        assert found[code].statement.endswith("; what it costs was not measured.")
    assert {"DS110", "DS111"} <= {part.code for part in result.unmeasured}


def test_the_largest_reason_is_told_where_it_is_not_drift(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finding = by_code(judged(tmp_path / "a", monkeypatch, ATTENTION, rejections=SHARES))["DS111"]
    assert finding.kind == "note"
    assert finding.statement == (
        "Of the chains that are rejected, 60% (95% 58% to 62%) end because the drafter is wrong with real states too, 20%"
        " through drift."
    )
    assert finding.advice[0].startswith("Capacity and data")
    other = {**SHARES, "vocabulary": interval(0.7, 0.02), "drafter": interval(0.05, 0.02)}
    finding = by_code(judged(tmp_path / "b", monkeypatch, ATTENTION, rejections=other))["DS111"]
    assert "vocabulary" in finding.advice[0]


@pytest.mark.parametrize(
    "changed",
    [
        {"drafter": interval(0.25, 0.02), "state": interval(0.45, 0.02)},
        {"target_undecided": interval(0.65, 0.02), "drafter": interval(0.0, 0.0)},
        {"drafter": interval(0.3, 0.05), "state": interval(0.18, 0.05)},
    ],
    ids=["drift is larger", "the text is undecided", "too close"],
)
def test_no_limit_is_named_where_it_may_be_drift(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any]
) -> None:
    assert "DS111" in judged(tmp_path / "a", monkeypatch, ATTENTION, rejections=SHARES | changed).clear


def test_causes_are_at_work_only_where_patching_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free = causes_of(judged(tmp_path / "a", monkeypatch, ATTENTION), False)
    assert free.seen == ("DS101",)
    assert "the growth costs nothing that can be told: +0.04" in free.sentence
    dear = causes_of(judged(tmp_path / "b", monkeypatch, BOTH), False)
    assert (
        "the carried state costs 0.08 (95% 0.04 to 0.12) tokens, how much of it through its norm was not split"
        in dear.sentence
    )
    split = BOTH | {"state_rms": {way: interval(0.05, 0.01) for way in ("alone", "last", "shapley")}}
    norm = causes_of(judged(tmp_path / "c", monkeypatch, split), False)
    assert "the norm alone costs 0.05 (95% 0.04 to 0.06) tokens" in norm.sentence
