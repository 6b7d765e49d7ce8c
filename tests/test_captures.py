from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from driftscope.captures import capture as captures_module
from driftscope.captures.cache import CaptureCache
from driftscope.captures.capture import Capture, capture
from driftscope.errors import DriftscopeError, TargetError
from driftscope.target.model import Target
from tests import closeness
from tests.tiny_target import EOS, ROUNDED, TinyPrompt, tiny_prompts, tiny_target

PROMPTS = tiny_prompts(9, 3, 14, 1)


@pytest.fixture(scope="module")
def target() -> Target:
    return tiny_target()


@pytest.fixture
def cache(tmp_path: Path) -> CaptureCache:
    return CaptureCache(tmp_path / "cache")


@pytest.fixture
def forwards(target: Target) -> Iterator[list[int]]:
    """The token count of every forward of the model."""
    seen: list[int] = []
    hook = target.layers[0].register_forward_pre_hook(lambda module, args: seen.append(args[0].shape[1]))
    yield seen
    hook.remove()


def assert_same(left: Capture, right: Capture) -> None:
    assert torch.equal(left.token_ids, right.token_ids)
    assert (left.prompt_id, left.prompt_length, left.stopped) == (right.prompt_id, right.prompt_length, right.stopped)
    assert sorted(left.boundaries) == sorted(right.boundaries)
    for name in ("near_tie", "loop"):
        assert torch.equal(getattr(left, name), getattr(right, name))
    for name in ("final", "rms"):
        closeness.assert_same(getattr(left, name), getattr(right, name), **ROUNDED)
    for b, state in left.boundaries.items():
        closeness.assert_same(state, right.boundaries[b], **ROUNDED)


@pytest.mark.numeric("plain")
def test_batched_equals_single(target: Target) -> None:
    batched = capture(target, PROMPTS, max_new_tokens=24, boundaries=[1, 4])
    assert [item.prompt_id for item in batched] == ["p0", "p1", "p2", "p3"]
    for prompt, item in zip(PROMPTS, batched, strict=True):
        (single,) = capture(target, [prompt], max_new_tokens=24, boundaries=[1, 4])
        assert_same(item, single)


def test_text_is_the_greedy_one_and_has_no_near_tie(target: Target) -> None:
    for item in capture(target, PROMPTS, max_new_tokens=24):
        logits = target.forward(item.token_ids.unsqueeze(0)).logits[0]
        start = item.prompt_length
        assert torch.equal(logits[start - 1 : -1].argmax(-1), item.token_ids[start:])
        assert not item.near_tie.any()
        assert item.new_tokens == 24 or item.stopped


@pytest.mark.numeric("plain")
def test_states_equal_those_of_the_model(target: Target) -> None:
    kept: list[torch.Tensor] = []
    (item,) = capture(target, PROMPTS[:1], max_new_tokens=8, boundaries=[4, 0, 2])
    hook = target.layers[-1].register_forward_hook(lambda module, args, output: kept.append(output))
    hidden = target.forward(item.token_ids.unsqueeze(0), output_hidden_states=True).hidden_states
    hook.remove()
    assert list(item.boundaries) == [0, 2, 4]
    closeness.assert_same(item.boundaries[0], hidden[0][0], **ROUNDED)
    closeness.assert_same(item.boundaries[2], hidden[2][0], **ROUNDED)
    closeness.assert_same(item.boundaries[4], kept[0][0], **ROUNDED)
    closeness.assert_same(item.final, hidden[4][0], **ROUNDED)
    assert item.rms.shape == (5, item.length)
    expected = np.stack([np.sqrt((state[0].numpy().astype(float) ** 2).mean(-1)) for state in (*hidden[:4], kept[0])])
    closeness.assert_same(item.rms, expected, **ROUNDED)


def test_bfloat16_stays_and_rms_is_float32() -> None:
    target = tiny_target()
    target.model.to(torch.bfloat16)
    (item,) = capture(target, PROMPTS[:1], max_new_tokens=8, boundaries=[1])
    assert item.final.dtype == item.boundaries[1].dtype == torch.bfloat16
    assert item.rms.dtype == torch.float32


def test_near_tie_is_marked_where_the_text_is_another(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    (clean,) = capture(target, PROMPTS[:1], max_new_tokens=6)
    start = clean.prompt_length
    text = clean.token_ids[start:].tolist()
    text[-1] = (text[-1] + 1) % EOS
    monkeypatch.setattr(captures_module, "continue_greedily", lambda *args: [text])
    (item,) = capture(target, PROMPTS[:1], max_new_tokens=6)
    assert np.flatnonzero(item.near_tie).tolist() == [item.length - 2]


def test_stops_at_eos_and_keeps_it(target: Target) -> None:
    free = capture(target, PROMPTS[:3], max_new_tokens=12)
    stop = int(free[0].token_ids[free[0].prompt_length + 4])
    stopping = tiny_target(eos_token_id=stop)
    made = capture(stopping, PROMPTS[:3], max_new_tokens=12)
    assert made[0].stopped
    for before, after in zip(free, made, strict=True):
        text = before.token_ids[before.prompt_length :].tolist()
        expected = text[: text.index(stop) + 1] if stop in text else text
        assert after.token_ids[after.prompt_length :].tolist() == expected


def test_loops_of_the_continuation_are_marked(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(captures_module, "continue_greedily", lambda *args: [[1, 2, 3, 4, 3, 4, 3, 4, 9]])
    (item,) = capture(target, [TinyPrompt("loop", (5, 5, 5, 5))], max_new_tokens=9)
    assert np.flatnonzero(item.loop).tolist() == list(range(6, 12))


@pytest.mark.numeric("plain")
def test_small_batches_give_the_same(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = capture(target, PROMPTS, max_new_tokens=10)
    sizes: list[int] = []
    real = captures_module.continue_greedily

    def counted(target: Target, prompts: list[tuple[int, ...]], count: int) -> list[list[int]]:
        sizes.append(len(prompts))
        if len(prompts) > 2:
            raise torch.OutOfMemoryError
        return real(target, prompts, count)

    monkeypatch.setattr(captures_module, "continue_greedily", counted)
    for left, right in zip(whole, capture(target, PROMPTS, max_new_tokens=10), strict=True):
        assert_same(left, right)
    assert sizes == [4, 2, 2]
    sizes.clear()
    monkeypatch.setattr(captures_module, "_TOKENS_PER_BATCH", 40)
    capture(target, PROMPTS, max_new_tokens=10)
    assert sizes == [1, 2, 1]


def test_cache_hit_runs_no_model(target: Target, cache: CaptureCache, forwards: list[int]) -> None:
    calls: list[tuple[str, int, int]] = []
    first = capture(
        target, PROMPTS, max_new_tokens=8, boundaries=[2], cache=cache, progress=lambda *step: calls.append(step)
    )
    assert calls == [("generate", 4, 4), *(("record", done, 4) for done in (1, 2, 3, 4))]
    forwards.clear()
    again = capture(target, PROMPTS, max_new_tokens=8, boundaries=[2], cache=CaptureCache(cache.root))
    assert forwards == []
    for left, right in zip(first, again, strict=True):
        assert_same(left, right)


def test_other_settings_miss_the_cache(target: Target, cache: CaptureCache, forwards: list[int]) -> None:
    capture(target, PROMPTS[:1], max_new_tokens=8, cache=cache)
    for other, prompt, count in (
        (target, PROMPTS[0], 9),
        (target, PROMPTS[1], 8),
        (tiny_target(seed=3), PROMPTS[0], 8),
    ):
        before = sum(entry.prompts for entry in cache.entries())
        capture(other, [prompt], max_new_tokens=count, cache=cache)
        assert sum(entry.prompts for entry in cache.entries()) == before + 1


def test_more_boundaries_add_files_and_keep_the_text(target: Target, cache: CaptureCache, forwards: list[int]) -> None:
    (first,) = capture(target, PROMPTS[:1], max_new_tokens=8, boundaries=[1], cache=cache)
    before = {path.name: path.stat().st_mtime_ns for path in cache.root.rglob("*.safetensors")}
    forwards.clear()
    (more,) = capture(target, PROMPTS[:1], max_new_tokens=8, boundaries=[1, 3], cache=cache)
    after = {path.name: path.stat().st_mtime_ns for path in cache.root.rglob("*.safetensors")}
    assert forwards == [first.length]
    assert set(after) - set(before) == {"boundary_3.safetensors"}
    assert all(after[name] == stamp for name, stamp in before.items())
    assert torch.equal(more.token_ids, first.token_ids)
    assert list(more.boundaries) == [1, 3]
    (fresh,) = capture(target, PROMPTS[:1], max_new_tokens=8, boundaries=[1, 3])
    assert_same(more, fresh)


@pytest.mark.parametrize("name", ["record.safetensors", "boundary_2.safetensors"])
@pytest.mark.parametrize("how", ["flip", "cut"])
def test_damaged_entry_is_made_anew(target: Target, cache: CaptureCache, name: str, how: str) -> None:
    (first,) = capture(target, PROMPTS[:1], max_new_tokens=8, boundaries=[2], cache=cache)
    (path,) = cache.root.rglob(name)
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content if how == "flip" else content[:-5])
    with pytest.warns(UserWarning, match=f"{name} is damaged"):
        (again,) = capture(target, PROMPTS[:1], max_new_tokens=8, boundaries=[2], cache=cache)
    assert_same(first, again)
    (third,) = capture(target, PROMPTS[:1], max_new_tokens=8, boundaries=[2], cache=cache)
    assert_same(first, third)


FORGED: dict[str, tuple[str, Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]], str]] = {
    "a name": ("record", lambda held: {"token_ids": held["token_ids"]}, "final is missing"),
    "a shape": ("record", lambda held: {**held, "final": held["final"][:, :-1]}, r"final has shape \[17, 31\], expected"),
    "a type": ("record", lambda held: {**held, "near_tie": held["near_tie"].long()}, "near_tie is int64"),
    "another text": ("record", lambda held: {**held, "token_ids": held["token_ids"] * 0}, "it is of another text"),
    "no token": ("record", lambda held: {**held, "token_ids": held["token_ids"].index_fill(0, torch.tensor(16), 99)}, "tokens"),
    "not finite": ("boundary_2", lambda held: {"state": held["state"] / 0}, "boundary 2 holds values that are not finite"),
}  # fmt: skip


@pytest.mark.parametrize("name", FORGED)
def test_an_entry_that_no_recording_makes_is_made_anew(target: Target, cache: CaptureCache, name: str) -> None:
    file, forge, reason = FORGED[name]
    (first,) = capture(target, PROMPTS[:1], max_new_tokens=8, boundaries=[2], cache=cache)
    (path,) = cache.root.rglob(f"{file}.safetensors")
    # Its checksum fits.
    cache._save(path, forge(load_file(path)))
    with pytest.warns(UserWarning, match=f"is damaged .*{reason}"):
        (again,) = capture(target, PROMPTS[:1], max_new_tokens=8, boundaries=[2], cache=cache)
    assert_same(first, again)
    (third,) = capture(target, PROMPTS[:1], max_new_tokens=8, boundaries=[2], cache=cache)
    assert_same(first, third)


def test_interrupted_capture_keeps_what_is_done(target: Target, cache: CaptureCache, forwards: list[int]) -> None:
    def interrupt(stage: str, done: int, total: int) -> None:
        if (stage, done) == ("record", 2):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        capture(target, PROMPTS, max_new_tokens=8, cache=cache, batch_size=2, progress=interrupt)
    assert cache.entries()[0].prompts == 2
    forwards.clear()
    resumed = capture(target, PROMPTS, max_new_tokens=8, cache=cache, batch_size=2)
    # Of the two prompts left: one batched prefill, then one recording forward each.
    assert [count for count in forwards if count > 1] == [3, *sorted(item.length for item in resumed)[:2][::-1]]
    for left, right in zip(resumed, capture(target, PROMPTS, max_new_tokens=8), strict=True):
        assert_same(left, right)


def test_half_written_folders_are_not_seen(target: Target, cache: CaptureCache) -> None:
    capture(target, PROMPTS[:1], max_new_tokens=8, cache=cache)
    (record,) = cache.root.rglob("record.safetensors")
    record.parent.rename(record.parent.with_name(".tmp-killed"))
    assert cache.entries()[0].prompts == 0
    capture(target, PROMPTS[:1], max_new_tokens=8, cache=cache)
    assert cache.entries()[0].prompts == 1


def test_same_prompt_twice(target: Target, cache: CaptureCache) -> None:
    twin = TinyPrompt("twin", PROMPTS[0].token_ids)
    first, second = capture(target, [PROMPTS[0], twin], max_new_tokens=8, cache=cache)
    assert (first.prompt_id, second.prompt_id) == ("p0", "twin")
    assert torch.equal(first.token_ids, second.token_ids)


def test_entries_and_remove(target: Target, cache: CaptureCache) -> None:
    capture(target, PROMPTS[:2], max_new_tokens=4, cache=cache)
    other = tiny_target(seed=5)
    other.name = "other"
    capture(other, PROMPTS[:1], max_new_tokens=4, cache=cache)
    entries = {entry.target: entry for entry in cache.entries()}
    assert {name: entry.prompts for name, entry in entries.items()} == {"tiny-llama": 2, "other": 1}
    folder = cache.root / entries["tiny-llama"].key
    assert entries["tiny-llama"].bytes == sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    assert entries["other"].dtype == "float32"
    with pytest.raises(DriftscopeError, match="no cached target nobody"):
        cache.remove("nobody")
    assert [entry.target for entry in cache.remove("tiny-llama")] == ["tiny-llama"]
    assert [entry.target for entry in cache.entries()] == ["other"]
    cache.remove(entries["other"].key[:6])
    assert cache.entries() == []


def test_remove_all_leaves_foreign_folders(target: Target, cache: CaptureCache) -> None:
    capture(target, PROMPTS[:1], max_new_tokens=4, cache=cache)
    foreign = cache.root / "mine"
    foreign.mkdir()
    (foreign / "target.json").write_text("{}")
    assert len(cache.remove()) == 1
    assert [path.name for path in cache.root.iterdir()] == ["mine"]


def test_meta_is_for_people(target: Target, cache: CaptureCache) -> None:
    (item,) = capture(target, PROMPTS[:1], max_new_tokens=4, cache=cache)
    (meta,) = cache.root.rglob("meta.json")
    known = json.loads(meta.read_text())
    assert (known["prompt_id"], known["prompt_length"], known["length"]) == ("p0", 9, item.length)


def test_cache_folder_from_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DRIFTSCOPE_CACHE", str(tmp_path / "env"))
    assert CaptureCache().root == tmp_path / "env"
    assert CaptureCache(tmp_path).root == tmp_path
    monkeypatch.delenv("DRIFTSCOPE_CACHE")
    assert CaptureCache().root.name == "captures"


def test_unwritable_cache_fails_before_the_work(target: Target, tmp_path: Path, forwards: list[int]) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DriftscopeError, match=r"cannot write the capture cache .*--cache-dir or DRIFTSCOPE_CACHE$"):
        capture(target, PROMPTS, cache=CaptureCache(tmp_path / "file" / "cache"), max_new_tokens=4)
    assert forwards == []


def test_states_that_are_not_finite_name_prompt_and_boundary() -> None:
    target = tiny_target()
    with torch.no_grad():
        target.layers[1].mlp.down_proj.weight[0, 0] = float("nan")
    with pytest.raises(TargetError, match=r"prompt p0: .* not finite at boundary 2, position 0"):
        capture(target, PROMPTS[:1], max_new_tokens=4)


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        (TinyPrompt("none", ()), "prompt none: it has no tokens"),
        (TinyPrompt("alien", (1, 4000)), "prompt alien: token ids 1 .. 4000, but target tiny-llama has 61"),
        (TinyPrompt("long", (1,) * 250), "prompt long: 250 tokens and 8 new ones exceed the 256 positions"),
    ],
)
def test_prompts_that_do_not_fit(target: Target, prompt: TinyPrompt, message: str) -> None:
    with pytest.raises(TargetError, match=message):
        capture(target, [prompt], max_new_tokens=8)


def test_boundary_that_does_not_exist(target: Target) -> None:
    with pytest.raises(TargetError, match=r"boundaries \[5\] asked for, but target tiny-llama has 0 to 4"):
        capture(target, PROMPTS, boundaries=[5])
