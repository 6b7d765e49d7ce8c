"""Checkpoints of one training on a step axis."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from driftscope.app.library import find_runs
from driftscope.app.training import rows, sentences, trainings
from tests.app.conftest import SMALL, charts, messages, words
from tests.rich_run import write_rich_run

Start = Callable[..., AppTest]


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three checkpoints of a training whose growth comes and goes, and a run of another drafter."""
    folder = tmp_path_factory.mktemp("training")
    for number, growth in ((500, 1.0), (1000, 1.3), (1500, 1.1)):
        write_rich_run(folder / f"run{number}", SMALL.changed(growth=growth), f"mine/step_{number}")
    write_rich_run(folder / "other", SMALL, "other")
    return folder


def test_checkpoints_of_a_training_are_found_by_their_number(steps: Path) -> None:
    ((name, found),) = trainings(find_runs([steps])).items()
    assert "step_*" in name
    assert [number for number, _ in found] == [500, 1000, 1500]
    assert trainings(find_runs([steps / "run500", steps / "other"])) == {}


def test_the_newest_is_told_against_the_best_before() -> None:
    told = [
        (step, {"growth": {"mean": mean}, "onset": {}, "cost": None}) for step, mean in ((1, 1.5), (2, 1.2), (3, 1.4))
    ]
    frame = rows(told)
    assert list(frame["figure"].unique()) == ["growth"], "what was not measured has no row"
    assert sentences(frame) == ["Norm growth: 1.40 at step 3, worse than the best before (1.20 at step 2)"]


def test_the_page_draws_every_checkpoint(app: Start, steps: Path) -> None:
    test = app(steps, page="training")
    assert not messages(test)
    assert "Norm growth" in words(test)
    growth = next(chart for chart in charts(test) if "x step 1" in json.dumps(chart))
    assert growth["layer"]


def test_without_a_training_the_page_says_what_one_is(app: Start, library: Path) -> None:
    assert "differ in one number" in words(app(library, page="training"))
    assert rows([]).equals(rows([(1, {"problem": "torn"})]))
    assert isinstance(rows([]), pd.DataFrame)
