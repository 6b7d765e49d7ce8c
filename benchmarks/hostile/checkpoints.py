"""Drafter checkpoints that lie: weights, configs, headers, indexes and links."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from hostile.registry import Random, maker, written
from hostile.spoil import changed_json, hostile_json, linked, lying_header, sparse, spoilt, value
from hostile.stock import PLANTED, Stock
from tests.checkpoints.layouts import stored


@maker("checkpoint", 6)
def weights_spoilt(folder: Path, draw: Random, stock: Stock) -> Path:
    name = draw.choice(("model.safetensors", "model.pt"))
    files = {name: spoilt(stock.checkpoint[name], draw, 3000), "config.json": stock.checkpoint["config.json"]}
    return written(folder, files)


@maker("checkpoint", 3)
def quantised_spoilt(folder: Path, draw: Random, stock: Stock) -> Path:
    """Quantised weights whose scales, shapes and words do not fit each other any more."""
    config = json.loads(stock.quantised["config.json"])
    settings = {"quant_method": "fp8", "weight_block_size": draw.choice(([128, 128], [1, 1], value(draw)))}
    bits = {"num_bits": draw.choice((4, 8, value(draw))), "block_structure": draw.choice((None, value(draw)))}
    settings["config_groups"] = draw.choice(({"group_0": {"weights": bits}}, value(draw)))
    text = json.dumps({**config, "quantization_config": draw.choice((settings, {}, value(draw)))}).encode()
    return written(
        folder, {"model.safetensors": spoilt(stock.quantised["model.safetensors"], draw, 3000), "config.json": text}
    )


@maker("checkpoint", 3)
def config_spoilt(folder: Path, draw: Random, stock: Stock) -> Path:
    config = json.loads(stock.checkpoint["config.json"])
    text = json.dumps(changed_json(config, draw)).encode()
    text = spoilt(text, draw) if draw.random() < 0.3 else text
    return written(folder, {"model.safetensors": stock.checkpoint["model.safetensors"], "config.json": text})


@maker("checkpoint")
def config_hostile(folder: Path, draw: Random, stock: Stock) -> Path:
    weights = {"model.safetensors": stock.checkpoint["model.safetensors"]}
    return written(folder, weights | {"config.json": hostile_json(draw)})


@maker("checkpoint", 3)
def header_hostile(folder: Path, draw: Random, stock: Stock) -> Path:
    """A safetensors header that claims what is not there."""
    lying = lying_header(stock.checkpoint["model.safetensors"], draw)
    return written(folder, {"model.safetensors": lying, "config.json": stock.checkpoint["config.json"]})


@maker("checkpoint")
def huge_and_sparse(folder: Path, draw: Random, stock: Stock) -> Path:
    """A sound header over terabytes that the disk does not hold."""
    size = draw.choice((2**34, 2**40, 2**42))
    header = {"fc.weight": {"dtype": "F32", "shape": [size // 64, 16], "data_offsets": [0, size]}}
    sparse(folder / "model.safetensors", header, size if draw.random() < 0.5 else 1000)
    return written(folder, {"config.json": stock.checkpoint["config.json"]})


@maker("checkpoint", 2)
def index_hostile(folder: Path, draw: Random, stock: Stock) -> Path:
    """An index that sends the reader elsewhere."""
    names = list(stored()[0])
    outside = os.path.relpath(stock.home / "secret.safetensors", folder)
    shard = draw.choice(
        (outside, str(stock.home / "secret.safetensors"), "./model.safetensors", "..", ".", "", "\x00", "a" * 300, 7, None,
         "sub", ["model.safetensors"], "config.json", "model.safetensors.index.json", "..\\secret.safetensors",
         "model.safetensors\n", "absent.safetensors")
    )  # fmt: skip
    weight_map: Any = dict.fromkeys(names, "model.safetensors") | {draw.choice((PLANTED, names[0])): shard}
    weight_map = draw.choice((weight_map, weight_map, weight_map, value(draw), {PLANTED: shard}))
    (folder / "sub").mkdir()
    index = json.dumps({"weight_map": weight_map}).encode() if draw.random() < 0.9 else hostile_json(draw)
    return written(folder, {**stock.checkpoint, "model.safetensors.index.json": index})


@maker("checkpoint")
def links(folder: Path, draw: Random, stock: Stock) -> Path:
    """Symbolic links to what never ends, or to nothing."""
    name = draw.choice(
        ("model.safetensors", "config.json", "model.safetensors.index.json", "model-00001-of-00001.safetensors")
    )
    written(folder, {k: v for k, v in stock.checkpoint.items() if k not in (name, "model.pt")})
    if name == "model-00001-of-00001.safetensors":
        (folder / "model.safetensors").unlink()
    linked(folder / name, draw)
    return folder if draw.random() < 0.7 else folder / name
