"""Survival, quantiles and sampling acceptance on planted rows."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from driftscope.figures import acceptance_figures
from driftscope.stats import served_walk
from tests.fake_run import Fake, tables

FAKE = Fake()


@pytest.fixture(scope="module")
def anchors() -> pd.DataFrame:
    rows = pd.concat([tables(FAKE, number)["anchors"] for number in range(FAKE.prompts)], ignore_index=True)
    known = np.where(rows["loop"], 1.0, 0.9 - 0.05 * rows["step"])
    return rows.assign(sampling=np.where(rows["feed"] == "text", known, np.nan))


def test_survival_of_chains_is_joint_acceptance_and_of_rounds_that_of_the_walk(anchors: pd.DataFrame) -> None:
    found = acceptance_figures(anchors, resamples=100)
    drafted = anchors[(anchors["feed"] == "drafted")]
    kept = drafted[~drafted["loop"]]
    walks = [
        served_walk(part.groupby("anchor")["accepted"].sum().to_numpy(), FAKE.depth).accepted
        for _, part in drafted.groupby("prompt")
    ]
    rounds = np.concatenate(walks)
    assert found["rounds"] == len(rounds)
    assert found["chains"] == FAKE.prompts * (FAKE.anchors - FAKE.loops)
    for entry in found["survival"]:
        joint = kept.loc[kept["step"] == entry["length"], "accepted"].mean()
        assert entry["chains"]["mean"] == pytest.approx(joint)
        assert entry["rounds"]["mean"] == pytest.approx((rounds >= entry["length"]).mean())
        assert entry["chains"]["low"] <= entry["chains"]["mean"] <= entry["chains"]["high"]
    for entry in found["served_quantiles"]:
        assert entry["length"]["mean"] == np.quantile(rounds, entry["level"], method="inverted_cdf")


def test_sampling_is_text_fed_and_outside_loops(anchors: pd.DataFrame) -> None:
    found = acceptance_figures(anchors, resamples=100)["sampling"]
    assert [entry["step"] for entry in found] == list(range(1, 9))
    assert [entry["acceptance"]["mean"] for entry in found] == pytest.approx([0.9 - 0.05 * k for k in range(1, 9)])


def test_depth_limits_the_walk(anchors: pd.DataFrame) -> None:
    found = acceptance_figures(anchors, 2, resamples=50)
    assert [entry["length"] for entry in found["survival"]] == [1, 2]
    assert max(entry["length"]["mean"] for entry in found["served_quantiles"]) == 2


def test_what_was_not_measured_is_absent(anchors: pd.DataFrame) -> None:
    gap = anchors[anchors["anchor"] != 12].drop(columns="sampling")
    found = acceptance_figures(gap, resamples=50)
    assert not {"sampling", "served_quantiles", "rounds"} & set(found)
    assert "rounds" not in found["survival"][0]
    assert "chains" in found["survival"][0]
    assert acceptance_figures(anchors.iloc[:0]) == {}
