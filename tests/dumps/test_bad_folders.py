"""Folders of captures that lie: what `probe --capture` is handed is what the index says, or it is refused in a line."""

from __future__ import annotations

import json
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from driftscope.api import capture
from driftscope.captures.cache import CaptureCache
from driftscope.captures.capture import Capture
from driftscope.captures.folder import INDEX, open_captures
from driftscope.errors import DriftscopeError
from driftscope.target.ends import TargetEnds
from tests.tiny_pair import TinyPair

Index = dict[str, Any]


@pytest.fixture(scope="module")
def whole(pair: TinyPair, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of texts of 33 and 34 tokens."""
    out = tmp_path_factory.mktemp("own") / "captures"
    return capture(str(pair.target), out=out, prompts=pair.prompts, layers=(1, 2), max_new_tokens=24).folder


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "captures"))


def handed_out(folder: Path, ends: TargetEnds) -> list[Capture]:
    found = open_captures(folder)
    found.check_target(ends)
    return found.captures()


def refused(folder: Path, ends: TargetEnds, reason: str) -> None:
    with pytest.raises(DriftscopeError, match=reason) as caught:
        handed_out(folder, ends)
    assert "\n" not in str(caught.value)
    assert str(folder) in str(caught.value)


def text(**changes: Any) -> Callable[[Index], Any]:
    return lambda index: index["texts"][0].update(changes)


INDEXES: dict[str, tuple[Callable[[Index], Any], str]] = {
    "a prompt without an answer": (text(prompt_length=33), r"texts.0: .* 33 tokens of prompt in 33"),
    "no tokens": (text(length=0), "texts.0.length: .* greater than 0"),
    "a text of no target": (text(length=2**30), "lists a text of 1,073,741,824 tokens"),
    "a longer text": (text(length=34), r"token_ids has shape \[33\], expected \[34\]"),
    "boundaries twice": (text(boundaries=[1, 1]), "boundaries of text .* are not in order"),
    "a boundary too high": (text(boundaries=[1, 5]), "has boundary 5, the target 4"),
    "a boundary that is not there": (text(boundaries=[1, 2, 3]), "boundary_3.safetensors is missing or damaged"),
    "a file elsewhere": (text(key="../../elsewhere"), "lies outside of the folder; not opened"),
    "a folder elsewhere": (text(target_key="/etc"), "lies outside of the folder; not opened"),
    "a share": (text(confirmed=2.0), "texts.0.confirmed: .* less than or equal to 1"),
    "an unknown key": (text(more=1), "texts.0.more: Extra inputs are not permitted"),
    "no sinks": (lambda index: index.update(sinks=[-1]), "sinks.0: .* greater than or equal to 0"),
    "no texts": (lambda index: index.update(texts=[]), "it lists no text"),
    "counts": (lambda index: index.update(skipped={"long": "many"}), "skipped.long: .* valid integer"),
    "a source": (lambda index: index.update(source=[]), "source: "),
    "another width": (lambda index: index["target"].update(hidden_size=64), "hidden_size 64, .* has 32"),
    "no layers": (lambda index: index["target"].update(layers=0), "target.layers: .* greater than 0"),
    "a later version": (lambda index: index.update(schema=2), "is of another version of driftscope"),
}


def test_a_sound_folder_is_handed_out(folder: Path, ends: TargetEnds) -> None:
    assert [(record.length, sorted(record.boundaries)) for record in handed_out(folder, ends)] == [
        (33, [1, 2]),
        (34, [1, 2]),
    ]


@pytest.mark.parametrize("name", INDEXES)
def test_an_index_that_does_not_fit_is_one_line(name: str, folder: Path, ends: TargetEnds) -> None:
    change, reason = INDEXES[name]
    index = json.loads((folder / INDEX).read_text())
    change(index)
    (folder / INDEX).write_text(json.dumps(index))
    refused(folder, ends, reason)


@pytest.mark.parametrize("content", ["[" * 20_000 + "]" * 20_000, '{"a": ' + "[" * 100 + "]" * 100 + "}", "{}", "null"])
def test_what_is_no_index_is_one_line(content: str, folder: Path, ends: TargetEnds) -> None:
    (folder / INDEX).write_text(content)
    refused(folder, ends, INDEX)


RECORDS: dict[str, tuple[str, Callable[[dict[str, Tensor]], dict[str, Tensor]], str]] = {
    "another name": ("boundary_1", lambda held: {"other": held["state"]}, "state is missing"),
    "another shape": ("boundary_1", lambda held: {"state": held["state"][:, :16]}, r"state has shape \[33, 16\]"),
    "another type": ("boundary_1", lambda held: {"state": held["state"].int()}, "state is int32"),
    "not finite": ("boundary_1", lambda held: {"state": held["state"] * torch.inf}, "state holds values that are not finite"),
    "other tokens": ("record", lambda held: {**held, "token_ids": held["token_ids"] + 61}, "token ids that the target"),
    "tokens as text": ("record", lambda held: {**held, "token_ids": held["token_ids"].float()}, "token_ids is float32"),
    "another depth": ("record", lambda held: {**held, "rms": held["rms"][1:]}, r"rms has shape \[4, 33\], expected \[5, 33\]"),
    "no ties": ("record", lambda held: {k: v for k, v in held.items() if k != "near_tie"}, "near_tie is missing"),
    "more": ("record", lambda held: {**held, "more": torch.zeros(2 << 20)}, "larger than captures.json says"),
}  # fmt: skip


@pytest.mark.parametrize("name", RECORDS)
def test_a_record_with_a_checksum_that_fits_is_still_checked(name: str, folder: Path, ends: TargetEnds) -> None:
    kind, forge, reason = RECORDS[name]
    entry = json.loads((folder / INDEX).read_text())["texts"][0]
    file = folder / entry["target_key"] / entry["key"] / f"{kind}.safetensors"
    CaptureCache._save(file, forge(load_file(file)))
    refused(folder, ends, reason)


def test_pipes_devices_and_holes_are_not_read(folder: Path, ends: TargetEnds) -> None:
    entry = json.loads((folder / INDEX).read_text())["texts"][0]
    file = folder / entry["target_key"] / entry["key"] / "boundary_1.safetensors"
    file.unlink()
    os.mkfifo(file)
    refused(folder, ends, "boundary_1.safetensors is missing or damaged .*not a regular file")
    file.unlink()
    file.symlink_to("/dev/zero")
    refused(folder, ends, "boundary_1.safetensors is missing or damaged .*not a regular file")
    file.unlink()
    size = 2**40
    header = json.dumps({"state": {"dtype": "F32", "shape": [size // 128, 32], "data_offsets": [0, size]}}).encode()
    with file.open("wb") as stream:
        stream.write(struct.pack("<Q", len(header)) + header)
        stream.truncate(8 + len(header) + size)
    refused(folder, ends, "larger than captures.json says")
    for place in ("/dev/zero", "."):
        (folder / INDEX).unlink()
        (folder / INDEX).symlink_to(place)
        refused(folder, ends, "not a regular file")
