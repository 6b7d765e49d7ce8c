"""Parts of a pair in other places, and less at once where memory is too small."""

from __future__ import annotations

import dataclasses
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from driftscope.captures.capture import capture
from driftscope.chain.chunks import chunked, with_budget
from driftscope.chain.pair import load_pair
from driftscope.chain.prompt_chains import Settings, Subject
from driftscope.errors import DriftscopeError
from driftscope.target.model import load_target
from driftscope.target.placement import execution_device
from driftscope.target.prompts import TokenizedPrompt
from tests import tiny_pair
from tests.closeness import assert_same
from tests.tiny_target import ROUNDED

pytest.importorskip("accelerate")


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tiny_pair.TinyPair:
    return tiny_pair.save_pair(Path(tmp_path_factory.mktemp("pair")))


@pytest.mark.numeric("plain")
def test_an_offloaded_target_gives_the_same_states(saved: tiny_pair.TinyPair) -> None:
    plain = load_pair(saved.checkpoint, saved.target)
    # Everything in memory but not on the device that computes; what accelerate does where a GPU is too small.
    loaded = load_target(saved.target, dtype=torch.float32)
    from accelerate import cpu_offload

    cpu_offload(loaded.model, execution_device="cpu")
    assert loaded.model.get_input_embeddings().weight.is_meta
    assert execution_device(loaded.model.get_output_embeddings()) == torch.device("cpu")
    moved = load_pair(saved.checkpoint, loaded)
    prompt = TokenizedPrompt("a", "", tuple(range(3, 12)), "")
    ours, theirs = (
        capture(pair.target, [prompt], max_new_tokens=24, boundaries=(1, 2, 3))[0] for pair in (plain, moved)
    )
    assert torch.equal(ours.token_ids, theirs.token_ids)
    assert_same(ours.final, theirs.final, **ROUNDED)
    assert torch.equal(plain.drafter.lm_head.weight, moved.drafter.lm_head.weight)
    assert torch.equal(plain.drafter.embed_tokens.weight, moved.drafter.embed_tokens.weight)


def test_a_drafter_may_lie_elsewhere(saved: tiny_pair.TinyPair) -> None:
    pair = load_pair(saved.checkpoint, saved.target, drafter_device="cpu", device_map={"": "cpu"})
    assert pair.drafter.device == torch.device("cpu")
    with pytest.raises(DriftscopeError, match="--drafter-device"):
        load_pair(saved.checkpoint, saved.target, drafter_device="nowhere")


def test_chunks_shrink_where_memory_runs_out_and_lose_nothing() -> None:
    seen: list[slice] = []

    def work(rows: slice) -> list[int]:
        if rows.stop - rows.start > 3:
            raise torch.OutOfMemoryError("CUDA out of memory")
        seen.append(rows)
        return list(range(rows.start, rows.stop))

    with pytest.warns(UserWarning, match="out of memory with 8 of anchors at once: going on with 4"):
        made = chunked(11, 8, work, "anchors")
    assert [item for part in made for item in part] == list(range(11))
    assert all(rows.stop - rows.start <= 2 for rows in seen)


def test_what_cannot_shrink_is_told_in_a_line() -> None:
    def never(size: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for run in (lambda: chunked(4, 2, never, "anchors"), lambda: with_budget(4 << 20, never, "scores")):
            with pytest.raises(DriftscopeError, match="out of memory") as caught:
                run()
            assert "\n" not in str(caught.value)


@pytest.mark.numeric("plain")
def test_chains_go_on_in_smaller_chunks(saved: tiny_pair.TinyPair, monkeypatch: pytest.MonkeyPatch) -> None:
    from driftscope.chain import observe

    pair = load_pair(saved.checkpoint, saved.target)
    prompt = TokenizedPrompt("a", "", tuple(range(3, 12)), "")
    record = capture(pair.target, [prompt], max_new_tokens=24, boundaries=(1, 2, 3))[0]
    settings = Settings(depth=3, horizon=4)
    whole = Subject(pair, record, settings).chains("drafted")
    trace = observe._trace

    def tight(model: Any, inputs: Any, rows: slice, *rest: Any) -> Any:
        if rows.stop - rows.start > 4:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return trace(model, inputs, rows, *rest)

    monkeypatch.setattr(observe, "_trace", tight)
    with pytest.warns(UserWarning, match="going on with"):
        parts = Subject(pair, record, dataclasses.replace(settings)).chains("drafted")
    for one, other in zip(whole, parts, strict=True):
        assert one.keys() == other.keys()
        for name in one:
            assert_same(one[name], other[name], name, **ROUNDED, size=1 if name == "excess" else None)
