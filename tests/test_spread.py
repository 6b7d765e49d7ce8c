"""Few anchors: evenly over the text for a run, consecutive where rounds are walked."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from driftscope.api import probe
from driftscope.runs.run import Run
from tests.tiny_pair import CONFIG, save_pair

COUNT, TOKENS, DEPTH = 4, 30, 3


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """All anchors and a few, with noise, whose own anchors are the first."""
    folder = tmp_path_factory.mktemp("spread")
    pair = save_pair(folder, dataclasses.replace(CONFIG))
    return {
        name: probe(
            pair.checkpoint,
            target=pair.target,
            prompts=pair.prompts,
            out=Path(folder) / name,
            anchors=count,
            probes=("norms", "attention", "acceptance", "noise"),
            depth=DEPTH,
            horizon=DEPTH,
            max_new_tokens=TOKENS,
            cache_dir=folder / "cache",
            audit=False,
        )
        for name, count in (("all", None), ("few", COUNT))
    }


def anchors(run: Run, prompt: str, probe_name: str = "clean") -> list[int]:
    rows = run.table("anchors", probe_name)
    return sorted(rows[rows["prompt"] == prompt]["anchor"].unique().tolist())


def test_few_anchors_are_the_middles_of_equal_stretches(runs: dict[str, Run]) -> None:
    for prompt in runs["all"].info.prompts:
        every, some = (anchors(runs[name], prompt.id) for name in ("all", "few"))
        assert some == [every[(2 * place + 1) * len(every) // (2 * COUNT)] for place in range(COUNT)]


def test_their_rows_are_those_of_the_full_run(runs: dict[str, Run]) -> None:
    keys = ["prompt", "feed", "anchor", "step"]
    every, some = (runs[name].table("anchors", "clean").set_index(keys) for name in ("all", "few"))
    assert every.loc[some.index, "drafted"].tolist() == some["drafted"].tolist()
    assert every.loc[some.index, "rms/carry"].to_numpy() == pytest.approx(some["rms/carry"].to_numpy(), rel=1e-5)


def test_no_walk_is_served_over_them_but_noise_has_consecutive_ones(runs: dict[str, Run]) -> None:
    few = runs["few"]
    assert "served" not in few.summary()["acceptance_length"]
    assert few.info.settings["spread"] is True
    assert "spread" not in runs["all"].info.settings
    clean = few.table("steps", "clean")
    assert "served_rounds" not in clean or clean["served_rounds"].isna().all()
    noise = few.table("steps", "noise")
    drafted = noise[(noise["feed"] == "drafted") & (noise["step"] == 1)]
    assert (drafted["served_rounds"] > 0).all()
    assert (drafted["served_rounds"] <= COUNT).all()
