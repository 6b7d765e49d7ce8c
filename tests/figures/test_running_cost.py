"""The running estimate of what drift costs: the same as the run's, and an end when it is narrow enough."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from driftscope import stats
from driftscope.captures.conditions import Source
from driftscope.errors import DriftscopeError
from driftscope.figures.running_cost import RunningCost
from driftscope.measuring.measure import in_random_order
from driftscope.measuring.request import ProbeRequest
from driftscope.runs.run import Run
from driftscope.stats.power import prompts_for_width
from driftscope.target.prompts import load_prompts
from tests.cost_shards import DEPTH, cost_shards
from tests.fake_run import Fake, meta, prompt_ids

PROMPTS = 20
SHARDS = cost_shards({"state": 0.3, "pattern": 0.1})


def test_the_last_estimate_is_the_figure_of_the_run(tmp_path: Path) -> None:
    fake = Fake(prompts=PROMPTS, depth=DEPTH)
    run, running = Run.create(tmp_path / "run", **meta(fake)), RunningCost(DEPTH)
    for number, prompt in enumerate(prompt_ids(fake)):
        tables = SHARDS(prompt, number)["cost"]
        run.write_shard("cost", prompt, tables)
        said = running.seen("cost", prompt, tables)
        assert said.endswith(f"{number + 1} prompts")
        assert (running.width is None) == (number + 1 < stats.MIN_PROMPTS)
    cost = run.summary()["drift_cost"]["cost"]
    assert running.cost is not None
    assert running.cost.to_dict() == cost
    resumed = RunningCost(DEPTH)
    resumed.go_on(run)
    assert resumed.cost == running.cost
    assert resumed.prompts == PROMPTS


def test_other_shards_say_nothing() -> None:
    running = RunningCost(DEPTH)
    assert running.seen("clean", "a", {}) == ""
    assert running.cost is None
    assert not running.enough


def test_it_has_enough_when_the_interval_is_as_narrow_as_asked() -> None:
    wide, narrow = RunningCost(DEPTH, until=10.0), RunningCost(DEPTH, until=1e-6)
    for number in range(PROMPTS):
        tables = SHARDS(f"p{number}", number)["cost"]
        wide.seen("cost", f"p{number}", tables)
        narrow.seen("cost", f"p{number}", tables)
        # No interval, no end: few prompts would look narrow by chance.
        assert wide.enough == (number + 1 >= stats.MIN_PROMPTS)
        assert not narrow.enough
    assert "stopped by --until 10" in wide.conclusion(3)
    assert "3 prompts were not needed" in wide.conclusion(3)
    assert narrow.width is not None
    assert f"about {prompts_for_width(narrow.width, PROMPTS, 1e-6)} prompts" in narrow.conclusion(0)
    assert "no interval under 12" in RunningCost(DEPTH, until=0.1).conclusion(0)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"until": 0.0}, "no width"),
        ({"until": float("nan")}, "no width"),
        ({"until": 0.1, "shards": "ray"}, "--shards ray"),
        ({"until": 0.1, "probes": "norms"}, "add the probe cost"),
    ],
)
def test_what_cannot_be_watched_is_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(DriftscopeError, match=words):
        ProbeRequest.of("drafter", "run", **given)


def test_the_order_depends_on_the_seed_and_not_on_the_file() -> None:
    prompts = load_prompts(None)
    sources: list[Any] = [Source(prompt, None) for prompt in prompts]  # type: ignore[arg-type]
    ids = [source.prompt.id for source in in_random_order(sources, 3)]
    assert ids == [source.prompt.id for source in in_random_order(sources[::-1], 3)]
    assert sorted(ids) == sorted(prompt.id for prompt in prompts)
    assert ids != sorted(ids)
    assert ids != [source.prompt.id for source in in_random_order(sources, 4)]
