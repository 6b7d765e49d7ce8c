"""Charts as plain data: what they draw as rows, and how they fit a card."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from driftscope.app import figures
from driftscope.app.drawing import Drawn, folded, resized
from driftscope.runs.run import Run
from driftscope.show import frames
from driftscope.show.charts.export import png_of, svg_of


@pytest.fixture(scope="module")
def run(library: Path) -> Run:
    return Run.open(library / "drifting")


def test_rows_are_the_figures_that_are_drawn(run: Run) -> None:
    (overview,) = figures.overview([run], ())
    rows = overview.rows()
    steps = frames.step_figures([run])
    for title, quantity, bucket in (
        ("share of attention", "mass", "sink"),
        ("excess over no drafting", "excess", "sink"),
    ):
        mine = rows[(rows["figure"] == title) & (rows["bucket"] == bucket)].sort_values("step")
        wanted = steps[(steps["quantity"] == quantity) & (steps["bucket"] == bucket)]
        np.testing.assert_allclose(mine["mean"], wanted["mean"])
        np.testing.assert_allclose(mine["low"], wanted["low"])
        assert (mine["count"] == wanted["count"].to_numpy()).all()
    growth = rows[rows["label"] == "over step 1"].sort_values("step")
    np.testing.assert_allclose(growth["mean"], steps.loc[steps["quantity"] == "growth", "mean"])
    assert not rows.duplicated().any()


def test_panels_below_each_other_are_charts_of_their_own(run: Run) -> None:
    (overview,) = figures.overview([run], ())
    panels = overview.panels()
    assert len(panels) == 3
    assert not overview.wide
    assert all("datasets" in panel and "layer" in panel for panel in panels)


def test_panels_side_by_side_with_names_of_their_own_are_charts_of_their_own(run: Run) -> None:
    aux = next(item for item in figures.norms([run], "rms", "size", "drafted") if item.name == "aux")
    assert not aux.wide
    assert aux.beside == len(aux.panels()) == len(aux.spec["hconcat"])
    assert all("datasets" in panel for panel in aux.panels())


def test_panels_that_share_the_names_of_their_rows_fill_a_wide_card(run: Run) -> None:
    jumps = next(item for item in figures.norms([run], "rms", "size", "drafted") if item.name == "jumps")
    assert jumps.wide
    assert jumps.panels() == [jumps.spec]
    widths = [part["width"] for part in resized(jumps.spec, 1000)["hconcat"]]
    assert 700 < sum(widths) < 1000
    assert [part["width"] for part in jumps.spec["hconcat"]] != widths


def test_a_long_legend_is_broken_into_lines_and_a_short_one_is_not() -> None:
    def spec(names: list[str]) -> dict[str, object]:
        colour = {"scale": {"domain": names}, "legend": {"orient": "top"}}
        return {"layer": [{"encoding": {"color": colour, "x": {"field": "step"}}}]}

    def columns(names: list[str]) -> object:
        return folded(spec(names), 58)["layer"][0]["encoding"]["color"]["legend"].get("columns")

    assert columns(["sink", "prompt", "drafted"]) is None
    assert columns(["x" * 40, "y" * 30]) == 1
    assert columns(["x" * 20] * 4) == 2


def test_every_drawing_becomes_an_image_in_both_looks(run: Run) -> None:
    drawn: Drawn = figures.overview([run], ())[0]
    light, dark = svg_of(drawn.spec, "light"), svg_of(drawn.spec, "dark")
    assert light.startswith("<svg")
    assert "Carried state" in light
    assert light != dark
    assert png_of(drawn.spec, "dark", 1.0).startswith(b"\x89PNG")
