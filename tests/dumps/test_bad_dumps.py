"""Dumps that lie: one clear line each, nothing left behind, no more memory than the files are worth."""

from __future__ import annotations

import gzip
import io
import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import torch

from driftscope.api import capture
from driftscope.captures.capture import Capture
from driftscope.errors import DriftscopeError
from driftscope.from_engines.files import held
from driftscope.target.ends import TargetEnds
from driftscope.target.model import load_target
from tests.dumps import writers
from tests.tiny_pair import TinyPair

AUX, LAYERS = (1, 2, 3), 4
Held = dict[str, Any]


@pytest.fixture(scope="module")
def records(pair: TinyPair, tmp_path_factory: pytest.TempPathFactory) -> list[Capture]:
    out, layers = tmp_path_factory.mktemp("own") / "captures", (*AUX, LAYERS)
    return capture(load_target(pair.target), out=out, prompts=pair.prompts, layers=layers, max_new_tokens=24).captures()


def refused(source: Path, ends: TargetEnds, reason: str, **options: Any) -> None:
    out = source.parent / "captures"
    with pytest.raises(DriftscopeError, match=reason) as caught:
        capture(ends, source=source, out=out, **options)
    assert "\n" not in str(caught.value)
    assert not out.exists()
    assert not list(source.parent.glob(".new-*"))


SPECFORGE: dict[str, tuple[Callable[[Held], Any], str]] = {
    "a list": (lambda held: list(held), "holds a list, expected tensors by name"),
    "many tensors": (lambda held: {f"{n}": torch.ones(1) for n in range(2000)}, r"not a dump of .* \(it holds 0, 1, 2, 3, 4, 5\)"),
    "a deep one": (lambda held: nested(300), r"not a dump of .* \(it holds a\)"),
    "no tensor": (lambda held: {**held, "aux_hidden_state": [1]}, "aux_hidden_state has list, expected a plain tensor"),
    "a complex mask": (lambda held: {**held, "loss_mask": held["loss_mask"] * 1j}, "loss_mask has .* expected a plain tensor"),
    "eight bits": (
        lambda held: {**held, "aux_hidden_state": held["aux_hidden_state"].to(torch.float8_e5m2)},
        "aux_hidden_state is float8_e5m2, expected states of 16 bits or more",
    ),
    "whole numbers": (lambda held: {**held, "hidden_state": held["hidden_state"].int()}, "hidden_state is int32, expected states"),
    "strange tokens": (lambda held: {**held, "input_ids": held["input_ids"] + 70}, "token ids 7.* has 61: another target"),
    "a bare token": (lambda held: {**held, "input_ids": held["input_ids"][0]}, r"input_ids has shape \[\], expected a"),
    "too long": (
        lambda held: {**held, "input_ids": torch.zeros(20_000).long()}, "20,000 tokens, but the target reads no .* 16,384"
    ),
}  # fmt: skip


def nested(depth: int) -> Held:
    found: Held = {}
    for _ in range(depth):
        found = {"a": found}
    return found


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", SPECFORGE)
def test_what_no_trainer_writes_is_one_line(
    name: str, packed: bool, ends: TargetEnds, records: list[Capture], tmp_path: Path
) -> None:
    change, reason = SPECFORGE[name]
    source = writers.specforge(tmp_path / "dump", records, AUX)
    # The second: what is true of the first file is known by then.
    file = source / "rows_0-2000" / "data_1.ckpt"
    torch.save(change(torch.load(file)), file)
    if packed:
        file.with_suffix(".ckpt.gz").write_bytes(gzip.compress(file.read_bytes(), 1))
        file.unlink()
    refused(source, ends, rf"data_1\.ckpt(\.gz)?: {reason}", layers=(0, 1, 2))


STEPS: dict[str, tuple[Held, str]] = {
    "rows": ({"loss_mask": torch.ones(5, 34)}, r"the parts of its batch are of different sizes: .*loss_mask \[5, 34\]"),
    "no dimensions": ({"attention_mask": torch.tensor(3)}, r"attention_mask has shape \[\]"),
    "one dimension": ({"attention_mask": torch.ones(2)}, r"attention_mask has shape \[2\]"),
    "not finite": ({"attention_mask": torch.full((2, 34), torch.nan)}, "row 0: 0 tokens; a text needs at least 2"),
    "no tokens": ({"input_ids": None, "attention_mask": None}, "input_ids has NoneType"),
}


@pytest.mark.parametrize("name", STEPS)
def test_a_batch_that_does_not_fit_together_is_one_line(
    name: str, ends: TargetEnds, records: list[Capture], tmp_path: Path
) -> None:
    change, reason = STEPS[name]
    source = writers.torchspec_step(tmp_path / "dump", records, AUX)
    (file,) = source.iterdir()
    content = torch.load(file)
    torch.save({**content, "batch": {**content["batch"], **change}}, file)
    refused(source, ends, reason, layers=(0, 1, 2))


def table(records: list[Capture], **columns: Any) -> pa.Table:
    known = {
        "input_ids": [record.token_ids.tolist() for record in records],
        "loss_mask": [writers.mask(record).tolist() for record in records],
    }
    return pa.table({name: column for name, column in {**known, **columns}.items() if column is not None})


DATA_SETS: dict[str, tuple[dict[str, Any], str]] = {
    "no mask": ({"loss_mask": None}, "not a data set with input_ids and loss_mask"),
    "numbers": ({"loss_mask": [1, 0]}, "loss_mask is int64, expected lists of whole numbers"),
    "texts": ({"input_ids": [["a"], ["b"]]}, "input_ids is list<item: string>, expected lists of whole numbers"),
    "nulls": ({"loss_mask": [[None, 1], [1]]}, "loss_mask of row 0 holds what is no whole number"),
    "no list": ({"loss_mask": pa.array([None, [1]])}, "loss_mask of row 0 holds what is no whole number"),
    "too large": (
        {"input_ids": pa.array([[2**64 - 1], [1]], pa.list_(pa.uint64()))},
        "input_ids of row 0 holds what is no",
    ),
    "short": ({"loss_mask": [[1], [1]]}, "row 0 has 33 tokens, but a loss mask of 1"),
}


@pytest.mark.parametrize("name", DATA_SETS)
def test_a_data_set_that_does_not_fit_is_one_line(
    name: str, ends: TargetEnds, records: list[Capture], tmp_path: Path
) -> None:
    columns, reason = DATA_SETS[name]
    source = writers.speculators(tmp_path / "dump", records, (*AUX, LAYERS))
    write_stream(tmp_path / "dump" / "data-00000-of-00001.arrow", table(records, **columns))
    refused(source, ends, rf"data-00000-of-00001\.arrow: {reason}", layers=AUX)


def write_stream(file: Path, rows: pa.Table, compression: str | None = None) -> None:
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_stream(sink, rows.schema, options=options) as out:
        out.write_table(rows)


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_a_data_set_that_inflates_is_not_read(
    compression: str, ends: TargetEnds, records: list[Capture], tmp_path: Path
) -> None:
    source = writers.speculators(tmp_path / "dump", records, (*AUX, LAYERS))
    file = tmp_path / "dump" / "data-00000-of-00001.arrow"
    write_stream(file, table(records, loss_mask=[[0] * (4 << 20)] * 2), compression)
    assert file.stat().st_size < 1 << 20
    before = pa.total_allocated_bytes()
    refused(source, ends, "compressed, or with dictionaries", layers=AUX)
    assert pa.total_allocated_bytes() - before < 1 << 20


def test_offsets_beyond_the_data_set_are_seen(ends: TargetEnds, records: list[Capture], tmp_path: Path) -> None:
    source = writers.speculators(tmp_path / "dump", records, (*AUX, LAYERS))
    file = tmp_path / "dump" / "data-00000-of-00001.arrow"
    content = file.read_bytes()
    # Where row 1 ends, in the offsets of either column.
    ends_at = sum(record.length for record in records)
    assert content.count(struct.pack("<i", ends_at)) >= 2
    file.write_bytes(content.replace(struct.pack("<i", ends_at), struct.pack("<i", 2**30)))
    refused(source, ends, "not a data set with input_ids and loss_mask .*(offset|too small)", layers=AUX)


def test_names_that_are_no_rows_and_files_that_are_none(
    ends: TargetEnds, records: list[Capture], tmp_path: Path
) -> None:
    source = writers.speculators(tmp_path / "dump", records, (*AUX, LAYERS))
    os.mkfifo(source / "hs_2.safetensors")
    (source / "hs_3.safetensors").symlink_to("/dev/zero")
    (source / "loop").symlink_to(".")
    made = capture(ends, source=source, out=tmp_path / "made", layers=AUX)
    assert [text.id for text in made.texts] == ["hs_0", "hs_1"]
    # A digit to Python, but no number.
    (source / "hs_1.safetensors").rename(source / "hs_².safetensors")
    refused(source, ends, "hs_².safetensors: nothing says where its prompt ends", layers=AUX)


def test_a_file_of_many_tensors_is_opened_once(tmp_path: Path) -> None:
    header = {f"x.{n}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for n in range(20_000)}
    text = json.dumps(header).encode()
    (tmp_path / "a.safetensors").write_bytes(struct.pack("<Q", len(text)) + text)
    assert len(held(tmp_path / "a.safetensors")) == 20_000


def test_states_that_shrink_as_none_do_are_not_read(ends: TargetEnds, tmp_path: Path) -> None:
    rows = 16_000
    last, mask = torch.zeros(1, rows, 32, dtype=torch.float64), torch.arange(rows) > rows - 40
    content = {"input_ids": torch.zeros(rows).long(), "hidden_state": last, "loss_mask": mask}
    content["aux_hidden_state"] = last.repeat(1, 1, 4)
    # Noise makes room for what unpacks to a multiple.
    content["noise"] = torch.frombuffer(bytearray(os.urandom(350_000)), dtype=torch.uint8)
    buffer = io.BytesIO()
    torch.save(content, buffer)
    (tmp_path / "dump").mkdir()
    (tmp_path / "dump" / "data_0.ckpt.gz").write_bytes(gzip.compress(buffer.getvalue(), 1))
    refused(tmp_path / "dump", ends, "20,480,000 bytes of states in .*; none shrink like that", layers=(0, 1, 2, 3))
    # Behind a short prompt, what is read of them is little: then they are zero, and said to be.
    with pytest.raises(DriftscopeError, match="boundary 1 is zero in 137 of 137 rows"):
        capture(ends, source=tmp_path / "dump", out=tmp_path / "captures", layers=(0, 1, 2, 3), prompt_tokens=9)
