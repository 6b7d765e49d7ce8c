"""Capture caches that lie."""

from __future__ import annotations

import json
import os
import shutil
import struct
from pathlib import Path

from hostile.registry import Random, maker
from hostile.spoil import hostile_json, linked, spoilt
from hostile.stock import Stock


@maker("capture", 5)
def capture_spoilt(folder: Path, draw: Random, stock: Stock) -> Path:
    place = Path(shutil.copytree(stock.capture, folder / "cache"))
    files = sorted(path for path in place.rglob("*") if path.is_file())
    for path in draw.sample(files, draw.choice((1, 1, 2))):
        path.write_bytes(spoilt(path.read_bytes(), draw, 600))
    return place


@maker("capture")
def capture_hostile(folder: Path, draw: Random, stock: Stock) -> Path:
    place = Path(shutil.copytree(stock.capture, folder / "cache"))
    file = draw.choice(sorted(place.rglob("*.safetensors")))
    text = json.dumps({"a": {"dtype": "F32", "shape": [2**38], "data_offsets": [0, 2**40]}}).encode()
    match draw.randrange(5):
        case 0:
            file.write_bytes(struct.pack("<Q", len(text)) + text)
        case 1:
            file.write_bytes(struct.pack("<Q", 2**62) + text)
        case 2:
            file.unlink()
            os.mkfifo(file)
        case 3:
            linked(file, draw)
        case 4:
            for json_file in place.rglob("*.json"):
                json_file.write_bytes(hostile_json(draw))
    return place
