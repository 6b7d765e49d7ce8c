"""Warnings come once, after patience, and again only after a recovery."""

from __future__ import annotations

import pytest

from driftscope.findings import Thresholds
from driftscope.integrations import EarlyWarning


def warning(**options: object) -> EarlyWarning:
    return EarlyWarning(thresholds=Thresholds({}), **options)  # type: ignore[arg-type]


def test_patience_and_recovery() -> None:
    watch = warning(patience=2)
    grown, fine = {"driftscope/norm_growth": 1.6}, {"driftscope/norm_growth": 1.05}
    assert watch(grown, 100) == []
    (line,) = watch(grown, 200)
    assert line.startswith("step 200: the carried state grows over 8 steps, norm_growth 1.600, above 1.100")
    assert line.endswith("(driftscope explain DS101)")
    assert watch(grown, 300) == []
    assert watch({}, 350) == []
    assert watch(fine, 400) == []
    assert watch(grown, 500) == []
    assert watch(grown, 600) != []


def test_one_bad_evaluation_is_none() -> None:
    watch = warning(patience=2)
    for value in (1.6, 1.0, 1.6, 1.0):
        assert watch({"driftscope/norm_growth": value}) == []


@pytest.mark.parametrize(
    ("name", "bad", "good", "code"),
    [
        ("norm_growth", 1.11, 1.09, "DS101"),
        ("self_excess_slope", 0.0051, 0.0049, "DS102"),
        ("sink_slope", -0.0051, -0.0049, "DS102"),
        ("noise_half_point", 0.39, 0.41, "DS104"),
    ],
)
def test_limits_are_those_of_the_findings_over_the_steps(name: str, bad: float, good: float, code: str) -> None:
    watch = warning(depth=11, patience=1, prefix="")
    assert watch({name: good}) == []
    (line,) = watch({name: bad})
    assert f"driftscope explain {code}" in line
    changed = EarlyWarning(11, thresholds=Thresholds({"norm_growth": 2.0}), patience=1, prefix="")
    assert (changed({name: bad}) == []) == (name == "norm_growth")


def test_what_is_no_number_says_nothing() -> None:
    assert warning(patience=1)({"driftscope/norm_growth": float("nan")}) == []
