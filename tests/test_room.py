"""The memory that a chunk may take follows what is free, and no figure follows it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
import torch

from driftscope.api import probe
from driftscope.chain import observe, room
from driftscope.runs.run import Run
from driftscope.runs.schema import tables as all_tables
from tests.tiny_pair import CONFIG, TinyPair, save_pair

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> TinyPair:
    return save_pair(tmp_path_factory.mktemp("pair"), dataclasses.replace(CONFIG, fc_norm=True))


@pytest.mark.parametrize(
    ("free", "chunk"),
    [(64 << 30, room.USUAL), (1 << 30, 64 << 20), ((1 << 30) + 4096, 64 << 20), (0, room.LEAST), (None, room.USUAL)],
)
def test_a_cpu_gives_a_share_up_to_the_usual_size(
    monkeypatch: pytest.MonkeyPatch, free: int | None, chunk: int
) -> None:
    monkeypatch.setattr(room, "free_bytes", lambda device: free)
    assert room.chunk_bytes(CPU) == chunk
    if free is not None and free > room.USUAL * room.SHARE:
        assert room.chunk_bytes(torch.device("cuda")) == free // room.SHARE


def test_the_tightest_limit_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    whole = room.free_bytes(CPU)
    monkeypatch.setattr(room, "_CGROUP", tmp_path)
    (tmp_path / "memory.max").write_text("3000000\n")
    (tmp_path / "memory.current").write_text("1000000\n")
    assert room.free_bytes(CPU) == 2_000_000
    (tmp_path / "memory.max").write_text("max\n")
    assert room.free_bytes(CPU) != 2_000_000
    assert whole is None or whole > 0


@pytest.fixture
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def test_where_last_digits_count_nothing_that_is_free_does(
    monkeypatch: pytest.MonkeyPatch, deterministic: None
) -> None:
    monkeypatch.setattr(room, "free_bytes", lambda device: 0)
    assert room.chunk_bytes(CPU) == room.USUAL


def test_figures_do_not_depend_on_what_is_free(monkeypatch: pytest.MonkeyPatch, tiny: TinyPair, tmp_path: Path) -> None:
    sizes: list[int] = []
    chunked = observe.chunked

    def noted(count: int, size: int, *rest: object) -> object:
        sizes.append(size)
        return chunked(count, size, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(observe, "chunked", noted)

    def run(name: str, free: int) -> tuple[Run, int]:
        monkeypatch.setattr(room, "LEAST", 1)
        monkeypatch.setattr(room, "free_bytes", lambda device: free)
        sizes.clear()
        made = probe(
            tiny.checkpoint,
            target=tiny.target,
            prompts=tiny.prompts,
            out=tmp_path / name,
            max_new_tokens=24,
            depth=3,
            horizon=4,
            probes=["norms", "attention", "acceptance", "noise", "pin", "cost"],
            cache_dir=tiny.cache,
            device="cpu",
            audit=False,
        )
        return made, min(sizes)

    (much, whole), (little, part) = run("much", 64 << 30), run("little", 1 << 18)
    assert part < 5 < whole
    for name in all_tables():
        one, other = much.table(name), little.table(name)
        assert list(one.columns) == list(other.columns)
        pd.testing.assert_frame_equal(one, other, rtol=1e-4, atol=1e-5, obj=name)
