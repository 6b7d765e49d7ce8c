"""The chart of jumps and slopes by site."""

from __future__ import annotations

from driftscope.show import frames
from driftscope.show.charts.jumps import PANELS, jumps
from tests.charts.test_charts import drawn
from tests.rich_run import calm, drifting


def test_jump_and_slope_of_every_site_stand_beside_each_other() -> None:
    frame = frames.site_jumps([drifting()])
    points = drawn(jumps(frame), "point")
    assert [unit["encoding"]["x"]["title"] for unit, _ in points] == list(PANELS.values())
    for (unit, rows), quantity in zip(points, PANELS, strict=True):
        wanted = frame[frame["quantity"] == quantity]
        assert list(rows["mean"]) == list(wanted["mean"])
        assert unit["encoding"]["y"]["sort"] == list(dict.fromkeys(frame["site"]))
        scale = unit["encoding"]["x"]["scale"]
        assert scale["type"] == "log"
        assert scale["domain"][0] < 1 < scale["domain"][1]


def test_runs_differ_in_shape_too_and_a_site_of_one_run_has_its_row() -> None:
    frame = frames.site_jumps([drifting(), calm()])
    unit, rows = drawn(jumps(frame), "point")[0]
    assert {"color", "shape", "yOffset"} <= set(unit["encoding"])
    assert set(rows["run"]) == {"eagle3", "eagle3.1"}


def test_nothing_recorded_is_said() -> None:
    ((_, rows),) = drawn(jumps(frames.site_jumps([drifting()]).iloc[:0]), "text")
    assert "not recorded" in rows["text"].iloc[0]
