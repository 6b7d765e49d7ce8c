"""Estimates scale what they time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from driftscope.captures.conditions import PlannedText
from driftscope.chain.pair import Pair, load_pair
from driftscope.chain.prompt_chains import Settings
from driftscope.measuring import estimate as module
from driftscope.measuring.estimate import Cost, duration, estimate, told
from driftscope.probes import chosen
from driftscope.probes.length import LengthProbe
from driftscope.probes.template import TemplateProbe
from tests import tiny_pair


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    saved = tiny_pair.save_pair(Path(tmp_path_factory.mktemp("pair")))
    return load_pair(saved.checkpoint, saved.target)


def test_an_estimate_of_real_work_is_positive(pair: Pair) -> None:
    costs = estimate(pair, [*chosen(["norms"]), TemplateProbe()], Settings(depth=2, horizon=4), max_new_tokens=12)
    assert [cost.probe for cost in costs] == ["norms", "template"]
    assert all(cost.chains > 0 for cost in costs)
    assert costs[0].captures == 0 < costs[1].captures


def test_estimates_count_chains_and_texts(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    timed: list[tuple[int, int]] = []

    def chains(self: Any, rows: int, anchors: int) -> float:
        timed.append((rows, anchors))
        return 2.0

    monkeypatch.setattr(module._Timings, "_time_chains", chains)
    monkeypatch.setattr(module._Timings, "_time_target", lambda self: (0.001, 0.1))
    settings = Settings(depth=8, horizon=16)
    length = LengthProbe(lengths=(512, 1024), texts=4, anchors=32)
    clean, template, long = estimate(pair, [*chosen(["norms"]), TemplateProbe(), length], settings, prompts=10)
    assert clean.chains == pytest.approx(10 * chosen(["norms"])[0].cost(8) * 2.0)
    assert template.chains == 10 * TemplateProbe().cost(8) * 2.0
    assert template.captures == pytest.approx(10 * TemplateProbe().cost(8) * (0.001 * 328 + 0.1 * 128))
    assert long.chains == 2 * 4 * 4 * 2.0
    assert long.captures == pytest.approx(sum(4 * (0.001 * (2 * n - 48) + 0.1 * 48) for n in (512, 1024)))
    # Each size is timed once.
    assert timed == [(228, 112), (512, 32), (1024, 32)]


def test_texts_beyond_what_is_timed_are_scaled(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module._Timings, "_time_chains", lambda self, rows, anchors: 1.0)
    timings = module._Timings(pair, Settings(), 128)
    assert timings.chains(PlannedText(1, 1, 4048, 48)) == pytest.approx((4096 / module.MEASURED_ROWS) ** 2)


def test_the_estimate_in_words() -> None:
    costs = [Cost("norms", "clean", 30, 0), Cost("attention", "clean", 30, 0), Cost("length", "length", 60, 600)]
    assert told(costs) == (
        "estimate: 12 min (up to 10 min of it captures that the cache may hold): norms, attention 30 s; length 11 min"
    )
    assert [duration(seconds) for seconds in (0.1, 89, 720, 7200)] == ["1 s", "89 s", "12 min", "2.0 h"]
