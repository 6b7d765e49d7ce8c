"""Prompts as tasks of a Ray cluster: the same rows, and a lost worker costs its prompt another try."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from driftscope.api import probe
from driftscope.errors import DriftscopeError, RunError
from driftscope.measuring import ray as ray_shards
from driftscope.runs.run import Run
from tests.tiny_pair import TinyPair, save_pair

PROBES = ("norms", "attention", "acceptance")
TABLES = ("anchors", "heads", "steps", "layers", "aux", "attended")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> TinyPair:
    return save_pair(tmp_path_factory.mktemp("pair"), prompts=4)


def measure(pair: TinyPair, out: Path, **options: Any) -> Run:
    return probe(pair.checkpoint, **pair.options, probes=PROBES, out=out, audit=False, **options)


def test_without_ray_there_is_one_line(pair: TinyPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(DriftscopeError, match=r"pip install 'driftscope\[ray\]'"):
        measure(pair, tmp_path / "run", shards="ray")
    assert not (tmp_path / "run").exists()


@pytest.fixture(scope="module")
def cluster() -> Any:
    ray = pytest.importorskip("ray", reason="ray is not installed: pip install 'driftscope[ray]'")
    # The workers must find the tests, too.
    root = str(Path(__file__).parents[1])
    paths = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    for attempt in range(3):
        try:
            ray.init(
                num_cpus=2,
                include_dashboard=False,
                log_to_driver=False,
                object_store_memory=100 << 20,
                runtime_env={"env_vars": {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}},
            )
            break
        # Ray gives a node 30 seconds to start, which a busy machine may not have, and needs shared memory and free ports.
        except Exception as error:
            ray.shutdown()
            if attempt == 2:
                pytest.skip(f"a Ray node does not start here: {error}")
    yield ray
    ray.shutdown()


def killed_once(mark: Path, prompt: str, *given: Any) -> Any:
    """measure_prompt in a worker that is killed on its first try of a prompt."""
    work = given[1]
    with (mark / f"tries-{work.source.prompt.id}").open("a") as tries:
        tries.write(f"{os.getpid()}\n")
    if work.source.prompt.id == prompt and not (mark / "killed").exists():
        (mark / "killed").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return ray_shards.measure_prompt(*given)


def always_killed(*given: Any) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.slow
def test_a_killed_worker_costs_its_prompt_another_try(
    cluster: Any, pair: TinyPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = measure(pair, tmp_path / "alone")
    prompts = [entry.id for entry in alone.info.prompts]
    mark = tmp_path / "mark"
    mark.mkdir()

    def task(*given: Any) -> Any:
        return killed_once(mark, prompts[1], *given)

    monkeypatch.setattr(ray_shards, "TASK", task)
    run = measure(pair, tmp_path / "run", shards="ray")
    tries = {prompt: (mark / f"tries-{prompt}").read_text().split() for prompt in prompts}
    assert {prompt: len(pids) for prompt, pids in tries.items()} == {p: 1 + (p == prompts[1]) for p in prompts}
    assert str(os.getpid()) not in {pid for pids in tries.values() for pid in pids}
    for table in TABLES:
        pd.testing.assert_frame_equal(run.table(table), alone.table(table))


@pytest.mark.slow
def test_a_prompt_that_always_kills_its_worker_is_one_line_and_the_rest_stays(
    cluster: Any, pair: TinyPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_shards, "TRIES", 1)
    monkeypatch.setattr(ray_shards, "TASK", always_killed)
    with pytest.raises(RunError, match=r"its worker lost each time.*--resume"):
        measure(pair, tmp_path / "run", shards="ray")
    monkeypatch.undo()
    # What a worker lacks is measured when the run is gone on with.
    run = measure(pair, tmp_path / "run", shards="ray", resume=True)
    assert all(run.done("clean", entry.id) for entry in run.info.prompts)
