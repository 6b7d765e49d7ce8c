"""Captures from what engines and trainers left on disk: every format, every off-by-one, and files that are not whole."""

from __future__ import annotations

import dataclasses
import gzip
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from driftscope.api import capture
from driftscope.captures.capture import Capture
from driftscope.errors import DriftscopeError
from driftscope.from_engines.drafter import Trial, check_with_drafter, losses
from driftscope.target.ends import TargetEnds, load_target_ends
from driftscope.target.model import Target, load_target
from tests.audit import pair as planted
from tests.dumps import writers
from tests.tiny_pair import TinyPair, save_pair

LAYERS = 4
AUX = (1, 2, 3)
EVERY = tuple(range(LAYERS + 1))


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> TinyPair:
    """Read only."""
    return save_pair(tmp_path_factory.mktemp("pair"))


@pytest.fixture(scope="module")
def target(pair: TinyPair) -> Target:
    model = load_target(pair.target)
    # Weights of 1 would hide the difference between before and after the norm.
    generator = torch.Generator().manual_seed(5)
    model.final_norm.weight.data = torch.exp(torch.randn(32, generator=generator)).mul(
        torch.randn(32, generator=generator).sign()
    )
    model.model.save_pretrained(pair.target)
    return model


@pytest.fixture(scope="module")
def ends(pair: TinyPair, target: Target) -> TargetEnds:
    return load_target_ends(pair.target)


@pytest.fixture(scope="module")
def records(pair: TinyPair, target: Target, tmp_path_factory: pytest.TempPathFactory) -> list[Capture]:
    """What our own target gives, every boundary."""
    out = tmp_path_factory.mktemp("own") / "captures"
    return capture(target, out=out, prompts=pair.prompts, layers=EVERY, max_new_tokens=24).captures()


WRITERS: dict[str, tuple[Callable[..., Path], tuple[int, ...], dict[str, Any]]] = {
    "vllm": (writers.vllm, (*AUX, LAYERS), {"layers": (*AUX, LAYERS)}),
    "speculators": (writers.speculators, (*AUX, LAYERS), {"layers": AUX}),
    "speculators before": (writers.speculators_before, (*AUX, LAYERS), {"layers": (0, 1, 2, 3)}),
    "specforge": (writers.specforge, AUX, {"layers": (0, 1, 2)}),
    "torchspec": (writers.torchspec, AUX, {"layers": (0, 1, 2)}),
    "torchspec of vllm": (lambda *given: writers.torchspec(*given, last=LAYERS), AUX, {"layers": (0, 1, 2)}),
    "torchspec step": (writers.torchspec_step, AUX, {"layers": (0, 1, 2)}),
}


@pytest.mark.parametrize("name", WRITERS)
def test_states_of_every_writer_are_those_of_the_target(
    name: str, pair: TinyPair, target: Target, ends: TargetEnds, records: list[Capture], tmp_path: Path
) -> None:
    write, boundaries, options = WRITERS[name]
    if name == "vllm":
        options = {**options, "prompts": pair.prompts}
    source = write(tmp_path / "dump", records, boundaries)
    made = capture(target, source=source, out=tmp_path / "captures", whole_target=True, **options)
    assert made.greedy
    assert made.sinks is None
    assert any("by the whole target" in line for line in made.source["checks"])
    for own, read in zip(records, made.captures(), strict=True):
        assert torch.equal(read.token_ids, own.token_ids)
        assert read.prompt_length == own.prompt_length
        assert torch.equal(read.final, own.final)
        assert torch.equal(read.near_tie, own.near_tie)
        assert torch.equal(read.loop, own.loop)
        for b in AUX:
            assert torch.equal(read.boundaries[b], own.boundaries[b])
            assert torch.equal(read.rms[b], own.rms[b])
        assert read.rms[0].isnan().all()


def test_the_default_ids_of_speculators_and_specforge(
    pair: TinyPair, ends: TargetEnds, records: list[Capture], tmp_path: Path
) -> None:
    # 2, n // 2 and n - 3 of four layers name a layer twice: said in a line, not guessed.
    source = writers.specforge(tmp_path / "dump", records, AUX)
    with pytest.raises(DriftscopeError, match=r"ids 1, 1, 0 name a layer twice"):
        capture(ends, source=source, out=tmp_path / "captures")


def test_packed_padded_and_only_some_of_the_files(ends: TargetEnds, records: list[Capture], tmp_path: Path) -> None:
    source = writers.specforge(tmp_path / "dump", records, AUX, packed=True, padding=5)
    made = capture(ends, source=source, out=tmp_path / "captures", layers=(0, 1, 2), limit=2, max_new_tokens=12)
    assert [text.id for text in made.texts] == ["data_0", "data_2"]
    (first, last), own = made.captures(), (records[0], records[2])
    for read, whole in zip((first, last), own, strict=True):
        assert read.length == whole.prompt_length + 12
        assert torch.equal(read.token_ids, whole.token_ids[: read.length])


WRONG: dict[str, tuple[str, tuple[int, ...], dict[str, Any], str]] = {
    "ids of layer outputs taken for boundaries": (
        "vllm", (2, 3, 4), {"layers": (1, 2, 3)}, r"ids are 1 too low \(--ids layer-output\?\)",
    ),
    "boundaries taken for layer outputs": (
        "vllm", (0, 1, 2), {"layers": (0, 1, 2), "ids": "layer-output"}, r"the embedding, boundary 0.*\(--ids boundary\?\)",
    ),
    "an embedding that is none": ("vllm", AUX, {"layers": (0, 1, 2)}, "declared as boundary 0, but is not"),
    "an id beyond the last layer": (
        "vllm", (*AUX, LAYERS), {"layers": (*AUX, LAYERS), "ids": "layer-output"}, "the target has 0 to 4; --ids boundary",
    ),
    "too few ids": ("vllm", (*AUX, LAYERS), {"layers": (1, 2)}, r"4 states a token, but 2 ids \(1, 2\)"),
    "no ids": ("vllm", (*AUX, LAYERS), {}, "has no default; name their --layers"),
    "another order": ("specforge", (3, 2, 1), {"layers": (0, 1, 2), "whole_target": True}, "is boundary 3"),
    "an unseen shift, by the whole target": (
        "specforge", (2, 3, 4), {"layers": (0, 1, 2), "whole_target": True}, "declared as boundary 1, but is boundary 2",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_id_is_detected(
    name: str, pair: TinyPair, target: Target, records: list[Capture], tmp_path: Path
) -> None:
    writer, boundaries, options, pattern = WRONG[name]
    source = WRITERS[writer][0](tmp_path / "dump", records, boundaries)
    if writer == "vllm":
        options = {**options, "prompts": pair.prompts}
    with pytest.raises(DriftscopeError, match=pattern) as caught:
        capture(target, source=source, out=tmp_path / "captures", **options)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "captures").exists()
    assert not list(tmp_path.glob(".new-*"))


def test_a_final_state_on_the_other_side_of_the_norm_is_noticed(
    pair: TinyPair, ends: TargetEnds, records: list[Capture], tmp_path: Path
) -> None:
    after = [dataclasses.replace(r, boundaries={**r.boundaries, LAYERS: r.final}) for r in records]
    source = writers.vllm(tmp_path / "dump", after, (*AUX, LAYERS))
    options: dict[str, Any] = {"source": source, "layers": (*AUX, LAYERS), "prompts": pair.prompts}
    made = capture(ends, out=tmp_path / "captures", **options)
    assert any("after the final norm, not before it" in line for line in made.source["checks"])
    assert made.boundaries == AUX
    assert torch.equal(made.captures()[0].final, records[0].final)


@pytest.mark.parametrize(("by", "words"), [(1, "1 position behind"), (-1, "1 position before")])
def test_states_at_other_positions_are_noticed(
    by: int, words: str, ends: TargetEnds, records: list[Capture], tmp_path: Path
) -> None:
    moved = [
        dataclasses.replace(
            r, final=r.final.roll(by, 0), boundaries={b: state.roll(by, 0) for b, state in r.boundaries.items()}
        )
        for r in records
    ]
    source = writers.specforge(tmp_path / "dump", moved, AUX)
    with pytest.raises(DriftscopeError, match=words):
        capture(ends, source=source, out=tmp_path / "captures", layers=(0, 1, 2))


def test_a_text_that_the_target_would_not_say_is_not_confirmed(
    target: Target, ends: TargetEnds, records: list[Capture], tmp_path: Path
) -> None:
    written = []
    for record in records:
        ids = record.token_ids.clone()
        ids[record.prompt_length :] = (ids[record.prompt_length :] * 7 + 3) % 59
        hidden = target.forward(ids[None], output_hidden_states=True).hidden_states
        states = {b: hidden[b][0] for b in AUX}
        written.append(dataclasses.replace(record, token_ids=ids, boundaries=states, final=hidden[LAYERS][0]))
    source = writers.specforge(tmp_path / "dump", written, AUX)
    made = capture(target, source=source, out=tmp_path / "captures", layers=(0, 1, 2), whole_target=True)
    assert not made.greedy
    assert not any(record.greedy or record.near_tie.any() for record in made.captures())
    assert any("not the target's greedy one" in line for line in made.source["checks"])


def test_a_shift_is_seen_in_the_loss_of_the_drafter() -> None:
    records = planted.captures()
    config, weights = planted.planted_config("eagle3"), planted.planted_weights("eagle3")
    from driftscope.drafter import build_drafter

    target = planted.planted_target()
    drafter = build_drafter(config, weights, target_embedding=target.embedding_weight, target_head=target.head_weight)
    (line,) = check_with_drafter(drafter, config, records)
    assert "text-fed loss" in line
    assert losses(drafter, config, records[:4], Trial("", "")).mean() < 2
    for shift, words in ((-1, "one boundary later"), (1, "one boundary earlier")):
        # Labels one too high or too low: the state called b is that of boundary b + shift.
        known = range(max(0, shift), planted.LAYERS + 1 + min(0, shift))
        called = [
            dataclasses.replace(r, boundaries={b: r.boundaries[b + shift] for b in known if b + shift in r.boundaries})
            for r in records
        ]
        with pytest.raises(DriftscopeError, match=words):
            check_with_drafter(drafter, config, called)
    lacking = [dataclasses.replace(r, boundaries={b + 1: r.boundaries[b] for b in planted.BOUNDARIES}) for r in records]
    with pytest.raises(DriftscopeError, match="they are one more each"):
        check_with_drafter(drafter, config, lacking)
    strange = []
    for record, other in zip(records, [*records[1:], records[0]], strict=True):
        rows = torch.arange(record.length) % other.length
        states = {b: state[rows] for b, state in other.boundaries.items()}
        strange.append(dataclasses.replace(record, boundaries=states))
    with pytest.raises(DriftscopeError, match="no better from its states"):
        check_with_drafter(drafter, config, strange)


def _cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def _of_two_texts(file: Path) -> None:
    held = load_file(file)
    save_file({**held, "token_ids": held["token_ids"][:-3].clone()}, file)


def _of_another_width(file: Path) -> None:
    held = load_file(file)
    save_file({**held, "hidden_states": held["hidden_states"][:, :, :16].clone()}, file)


def _not_finite(file: Path) -> None:
    held = load_file(file)
    held["hidden_states"][3, 1, 2] = torch.inf
    save_file(held, file)


def _of_another_vocabulary(file: Path) -> None:
    held = load_file(file)
    held["token_ids"][-1] = 99
    save_file(held, file)


def _nameless(file: Path) -> None:
    save_file({"weights": torch.zeros(3)}, file)


SPOILT: dict[str, tuple[Callable[[Path], None], str]] = {
    "cut off": (_cut, "truncated|does not fit"),
    "of two texts": (_of_two_texts, "30 tokens, but 33 states; it is cut off, or of two texts"),
    "another width": (_of_another_width, "16 wide, the target's 32"),
    "not finite": (_not_finite, "not finite"),
    "another vocabulary": (_of_another_vocabulary, "none of the 3 prompts|token ids"),
    "not a dump": (_nameless, r"not a dump of speculators, vllm, .* \(it holds weights\)"),
    "empty": (lambda file: file.write_bytes(b""), "empty file"),
}  # fmt: skip


@pytest.mark.parametrize("name", SPOILT)
def test_a_spoilt_file_is_one_line(
    name: str, pair: TinyPair, ends: TargetEnds, records: list[Capture], tmp_path: Path
) -> None:
    spoil, pattern = SPOILT[name]
    source = writers.vllm(tmp_path / "dump", records, (*AUX, LAYERS))
    spoil(sorted(source.glob("*.safetensors"))[0])
    with pytest.raises(DriftscopeError, match=pattern) as caught:
        capture(ends, source=source, out=tmp_path / "out", layers=(*AUX, LAYERS), prompts=pair.prompts)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_code_in_a_dump_is_not_run(ends: TargetEnds, records: list[Capture], tmp_path: Path) -> None:
    source = writers.specforge(tmp_path / "dump", records, AUX)
    ran = tmp_path / "ran"

    class Runs:
        def __reduce__(self) -> Any:
            return (Path.touch, (ran,))

    file = source / "rows_0-2000" / "data_0.ckpt"
    torch.save({**torch.load(file), "more": Runs()}, file, pickle_module=pickle)
    for path in (file, file.with_suffix(".ckpt.gz")):
        if path != file:
            path.write_bytes(gzip.compress(file.read_bytes()))
            file.unlink()
        with pytest.raises(DriftscopeError, match="is code and was not run"):
            capture(ends, source=source, out=tmp_path / "out", layers=(0, 1, 2))
    assert not ran.exists()


def test_gzip_that_swells_is_not_unpacked(ends: TargetEnds, tmp_path: Path) -> None:
    (tmp_path / "dump").mkdir()
    (tmp_path / "dump" / "data_0.ckpt.gz").write_bytes(gzip.compress(bytes(64 << 20)))
    with pytest.raises(DriftscopeError, match="unpacks to more than 64 times its size"):
        capture(ends, source=tmp_path / "dump", out=tmp_path / "out")


def test_where_the_answer_starts(pair: TinyPair, ends: TargetEnds, records: list[Capture], tmp_path: Path) -> None:
    source = writers.vllm(tmp_path / "dump", records, (*AUX, LAYERS))
    options: dict[str, Any] = {"source": source, "layers": (*AUX, LAYERS)}
    with pytest.raises(DriftscopeError, match="nothing says where its prompt ends"):
        capture(ends, out=tmp_path / "out", **options)
    made = capture(ends, out=tmp_path / "out", prompt_tokens=9, **options)
    assert {text.prompt_length for text in made.texts} == {9}
    other = tmp_path / "other.jsonl"
    other.write_text('{"text": "w59 w58"}\n')
    with pytest.raises(DriftscopeError, match="none of the 1 prompts begins this text"):
        capture(ends, out=tmp_path / "none", prompts=other, **options)
    named = capture(ends, out=tmp_path / "named", prompts=pair.prompts, **options)
    assert [text.id for text in named.texts] == [record.prompt_id for record in records]


def test_the_data_set_beside_speculators_files_must_be_theirs(
    ends: TargetEnds, records: list[Capture], tmp_path: Path
) -> None:
    source = writers.speculators(tmp_path / "dump", records, (*AUX, LAYERS))
    first, second = source / "hs_0.safetensors", source / "hs_1.safetensors"
    held = second.read_bytes()
    second.write_bytes(first.read_bytes())
    first.write_bytes(held)
    with pytest.raises(DriftscopeError, match="other tokens than row 0 of the data set"):
        capture(ends, source=source, out=tmp_path / "out", layers=AUX)
    first.rename(source / "hs_7.safetensors")
    second.unlink()
    (source / "hs_2.safetensors").unlink()
    with pytest.raises(DriftscopeError, match="has no row 7"):
        capture(ends, source=source, out=tmp_path / "out", layers=AUX)
