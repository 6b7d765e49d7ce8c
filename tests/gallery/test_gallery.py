"""Pictures: each with a chart, words and a table that holds the same figures."""

from __future__ import annotations

import numpy as np
import pandas as pd

from driftscope.show.gallery import Picture, pictures, sections
from driftscope.show.tables import figures_table, interval_text
from tests.rich_run import DRIFT, calm, drawn, drifting, unmeasured


def named(found: list[Picture]) -> dict[str, Picture]:
    names = {picture.name: picture for picture in found}
    assert len(names) == len(found)
    return names


def test_pictures_follow_the_sections_and_say_what_they_show() -> None:
    found = named(drawn())
    order = list(sections([drifting()]))
    held = [picture.section for picture in found.values()]
    assert held == sorted(held, key=order.index)
    assert set(held) == set(order)
    for picture in found.values():
        assert len(picture.table) > 0
        assert picture.about.endswith(".")
    table = found["overview"].table
    last = drifting().summary()["steps"][-1]
    growth = interval_text(*last["growth"].values(), ".2f")
    assert table["growth"].iloc[-1] == growth
    assert table["anchors"].iloc[-1] == f"{last['acceptance']['anchors']:,}"
    assert (
        found["noise-dose"]
        .sentences[0]
        .startswith("eagle3, noise on the carried state: half of the length is lost at alpha 0.")
    )
    assert "magnitude causes" in found["pin-excess"].sentences[0]


def test_a_run_without_shards_has_no_picture() -> None:
    assert pictures([unmeasured()]) == []


def test_depth_and_onsets_are_as_given() -> None:
    marks = pd.DataFrame({"run": ["eagle3"], "key": ["norm_up"], "name": ["norm up"], "step": [3]})
    picture = named(pictures([drifting()], depth=3, onsets=marks))["overview"]
    assert list(picture.table["step"]) == [1, 2, 3]
    texts = [row["text"] for rows in picture.chart.to_dict()["datasets"].values() for row in rows if "text" in row]
    assert texts == ["norm up from step 3"]


def test_tables_put_runs_beside_each_other_or_below() -> None:
    found = named(pictures([drifting(), calm()]))
    assert list(found["displacement"].table) == ["step", "eagle3: displacement", "eagle3.1: displacement", "anchors"]
    assert list(found["sites"].table)[:2] == ["run", "site"]


def test_what_was_not_measured_is_a_dash_and_denominators_stand_beside() -> None:
    frame = pd.DataFrame(
        {
            "run": "a",
            "step": [1, 1, 2, 2],
            "quantity": ["x", "y"] * 2,
            "mean": [0.5, -0.0001, np.nan, 1.0],
            "low": [0.4, np.nan, np.nan, 0.9],
            "high": [0.6, np.nan, np.nan, 1.1],
            "count": [10, 20, 10, 30],
            "counted": ["anchors", "chains"] * 2,
        }
    )
    table = figures_table(frame, ["step"], "quantity", form=".2f")
    assert table.to_dict("list") == {
        "step": [1, 2],
        "x": ["0.50 (0.40 to 0.60)", "–"],  # noqa: RUF001
        "y": ["0.00", "1.00 (0.90 to 1.10)"],
        "anchors": ["10", "10"],
        "chains": ["20", "30"],
    }


def test_rows_of_the_site_table_are_the_sites() -> None:
    table = named(drawn())["sites"].table
    assert table["site"].iloc[0] == "fused"
    assert list(table)[1:] == [str(step) for step in range(1, DRIFT.depth + 1)]
    assert table.iloc[0, 2] == "–"  # noqa: RUF001
