"""Only runs of the same texts are compared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from driftscope.compare import CompareError, compare
from driftscope.runs.run import Run
from tests.drafters import HEALTHY, Shard, write_drafter

SMALL = HEALTHY.changed(prompts=3, anchors=8, depth=3)


def pair(folder: Path, first: dict[str, Any], second: dict[str, Any]) -> list[Run]:
    return [write_drafter(folder / name, **{"fake": SMALL, **how}) for name, how in (("a", first), ("b", second))]


@pytest.mark.parametrize(
    ("second", "words"),
    [
        ({"settings": {"dtype": "bfloat16"}}, "b has dtype bfloat16, a float32: probe both with the same --dtype"),
        ({"settings": {"horizon": 8}}, "b has horizon 8, a 16: probe both with the same --horizon"),
        ({"settings": {"max_new_tokens": 9}}, "b has max_new_tokens 9, a 48"),
        ({"sinks": (0, 1)}, "b has sinks [0, 1], a [0]: probe both with the same --sink"),
        ({"fake": SMALL.changed(prompts=4)}, "chat-03 not in both"),
    ],
)
def test_another_measurement_is_one_line(tmp_path: Path, second: dict[str, Any], words: str) -> None:
    with pytest.raises(CompareError) as error:
        compare(pair(tmp_path, {}, second), resamples=50)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_another_target_is_refused(tmp_path: Path) -> None:
    runs = pair(tmp_path, {}, {})
    runs[1].update(target=runs[1].info.target.model_dump() | {"fingerprint": "f2"})
    with pytest.raises(CompareError, match="b has the target fake/target"):
        compare(runs)


def test_other_texts_are_refused(tmp_path: Path) -> None:
    def other(shard: Shard, number: int) -> None:
        shard["anchors"]["text"] += number == 1

    with pytest.raises(CompareError, match="the texts differ at prompt chat-01"):
        compare(pair(tmp_path, {}, {"edit": other}))


def test_no_run_and_a_run_without_shards(tmp_path: Path) -> None:
    with pytest.raises(CompareError, match="no run to compare"):
        compare([])
    runs = pair(tmp_path, {}, {})
    for shard in (runs[1].folder / "shards/clean").iterdir():
        for file in shard.iterdir():
            file.unlink()
        shard.rmdir()
    with pytest.raises(CompareError, match="b holds no clean chains"):
        compare([runs[0].folder, runs[1].folder])


def test_a_run_that_was_stopped_is_compared_on_what_it_has(tmp_path: Path) -> None:
    runs = pair(tmp_path, {}, {"carry": "post"})
    shard = runs[1].folder / "shards/clean/chat-02"
    for file in shard.iterdir():
        file.unlink()
    shard.rmdir()
    found = compare([runs[0].folder, runs[1].folder], resamples=50)
    assert found.prompts == 2
    assert any("the 2 prompts that every run has" in note for note in found.notes)


def test_depth_is_what_every_run_holds(tmp_path: Path) -> None:
    def texts(shard: Shard, number: int) -> None:
        shard["anchors"]["text"] = shard["anchors"]["anchor"] + shard["anchors"]["step"]

    runs = [
        write_drafter(tmp_path / f"{depth}", SMALL.changed(depth=depth), edit=texts, settings={"depth": depth})
        for depth in (4, 3)
    ]
    found = compare(runs, resamples=50)
    assert found.depth == 3
    assert any("up to step 3" in note for note in found.notes)
    with pytest.raises(CompareError, match="every run holds 3 steps, 4 asked"):
        compare(runs, depth=4)
