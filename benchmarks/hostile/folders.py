"""Folders of captures that lie, as they are given to `probe --capture`."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from driftscope.captures.cache import CaptureCache
from hostile.dumps import changed
from hostile.registry import Random, maker
from hostile.spoil import changed_json, hostile_json, linked, lying_header, sparse, spoilt
from hostile.stock import Stock

INDEX = "captures.json"


def _copied(folder: Path, stock: Stock) -> Path:
    return Path(shutil.copytree(stock.folder, folder / "captures"))


@maker("folder", 4)
def folder_spoilt(folder: Path, draw: Random, stock: Stock) -> Path:
    place = _copied(folder, stock)
    files = [path for path in sorted(place.rglob("*.safetensors"))] + [place / INDEX]
    for path in draw.sample(files, draw.choice((1, 1, 2))):
        path.write_bytes(spoilt(path.read_bytes(), draw, 600))
    return place


@maker("folder", 5)
def index_changed(folder: Path, draw: Random, stock: Stock) -> Path:
    """An index with other values in it than were written."""
    place = _copied(folder, stock)
    content = json.loads((place / INDEX).read_bytes())
    for _ in range(draw.choice((1, 1, 3))):
        content = changed_json(content, draw)
    (place / INDEX).write_text(json.dumps(content))
    return place


@maker("folder", 2)
def claims_wrong(folder: Path, draw: Random, stock: Stock) -> Path:
    """An index of the right form whose numbers and names do not fit what it lists."""
    place = _copied(folder, stock)
    content = json.loads((place / INDEX).read_bytes())
    text, target = draw.choice(content["texts"]), content["target"]
    match draw.randrange(8):
        case 0:
            text["length"] = draw.choice((-1, 0, 1, text["length"] - 1, 2**40))
        case 1:
            text["prompt_length"] = draw.choice((-1, 0, text["length"], 2**40))
        case 2:
            text["boundaries"] = draw.choice(([-1], [7], [1, 1], [10**9], list(range(10**6)), []))
        case 3:
            text[draw.choice(("key", "target_key"))] = draw.choice(
                ("..", "../..", "/", "/etc", "", ".", "a" * 300, "\x00", "a\nb", str(stock.home), "con", "\ud800")
            )
        case 4:
            target[draw.choice(("layers", "hidden_size", "vocab_size"))] = draw.choice((-1, 0, 1, 2**40))
        case 5:
            content["sinks"] = draw.choice(([-1], [10**9], list(range(10**5)), [[0]], "0"))
        case 6:
            content["texts"] = content["texts"] * draw.choice((2, 300))
        case 7:
            content["max_new_tokens"] = draw.choice((-1, 0, 10**18))
    (place / INDEX).write_text(json.dumps(content))
    return place


@maker("folder", 2)
def index_hostile(folder: Path, draw: Random, stock: Stock) -> Path:
    place = _copied(folder, stock)
    if draw.random() < 0.7:
        (place / INDEX).write_bytes(hostile_json(draw))
    else:
        linked(place / INDEX, draw)
    return place


@maker("folder", 4)
def records_forged(folder: Path, draw: Random, stock: Stock) -> Path:
    """Files with a checksum that fits, of other names, shapes, types and values."""
    place = _copied(folder, stock)
    file = draw.choice(sorted(place.rglob("*.safetensors")))
    held = load_file(file)
    name = draw.choice(list(held))
    ways: tuple[Callable[[], dict[str, Any]], ...] = (
        lambda: {**held, name: changed(held[name], draw)},
        lambda: {**held, name: changed(held[name], draw)},
        lambda: {key: item for key, item in held.items() if key != name},
        lambda: {**held, "more": torch.zeros(10)},
        lambda: {"state": held[name]},
    )
    forged = draw.choice(ways)()
    try:
        CaptureCache._save(file, {key: item for key, item in forged.items() if isinstance(item, Tensor)})
    except (ValueError, RuntimeError, KeyError, NotImplementedError, TypeError):
        file.unlink()
    return place


@maker("folder", 3)
def records_hostile(folder: Path, draw: Random, stock: Stock) -> Path:
    """Headers that claim what is not there, holes, links and pipes."""
    place = _copied(folder, stock)
    file = draw.choice(sorted(place.rglob("*.safetensors")))
    match draw.randrange(5):
        case 0:
            file.write_bytes(lying_header(file.read_bytes(), draw))
        case 1:
            file.unlink()
            os.mkfifo(file)
        case 2:
            linked(file, draw)
        case 3:
            length = draw.choice((2**24, 2**33))
            entry = {"dtype": "F32", "shape": [length, 32], "data_offsets": [0, 128 * length]}
            sparse(file, {"state": entry, "__metadata__": {"crc32": "0", "layout": "0"}}, 128 * length)
        case 4:
            linked(file.parent, draw, (str(stock.home), "/dev/zero"))
    return place
