"""Several runs in panels that share what is picked."""

from __future__ import annotations

import warnings

import pandas as pd
import pytest

from driftscope.show import frames
from driftscope.show.charts import spec
from driftscope.show.charts.export import svg
from driftscope.show.charts.linked import RUN, STEP, linked
from tests.fake_run import Fake
from tests.rich_run import write_rich_run


@pytest.fixture(scope="module")
def figures(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    folder = tmp_path_factory.mktemp("linked")
    fake = Fake(prompts=12, anchors=6, depth=4, heads=2)
    steady = fake.changed(growth=1.0, sink_shift=0.0, self_shift=0.0)
    runs = [write_rich_run(folder / "pre", fake, "pre"), write_rich_run(folder / "post", steady, "post")]
    return frames.step_figures(runs)


def test_each_panel_draws_its_quantity_of_every_run(figures: pd.DataFrame) -> None:
    drawn = spec(linked(figures))
    assert len(drawn["concat"]) == 4
    held = pd.concat(pd.DataFrame(rows) for rows in drawn["datasets"].values() if "mean" in rows[0])
    for quantity, bucket in (("growth", ""), ("excess", "self_generated"), ("displacement", ""), ("conditional", "")):
        wanted = figures[(figures["quantity"] == quantity) & (figures["bucket"] == bucket)]["mean"].dropna()
        assert set(wanted) <= set(held["mean"])
    assert "post" in svg(linked(figures))


def test_a_run_and_a_step_can_be_picked_in_every_panel(figures: pd.DataFrame) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        params = {param["name"]: param for param in spec(linked(figures))["params"]}
    assert set(params) == {RUN, STEP}
    assert params[RUN]["bind"] == "legend"
    assert params[STEP]["select"]["fields"] == ["step"]
    assert all(len(param["views"]) >= 4 for param in params.values())


def test_a_quantity_that_no_run_has_gets_no_panel(figures: pd.DataFrame) -> None:
    assert len(spec(linked(figures[figures["quantity"] != "displacement"]))["concat"]) == 3
    assert "nothing to compare" in svg(linked(figures.iloc[:0]))
