"""Run folders that lie: Parquet and run.json."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from hostile.registry import MARK, Code, Random, maker
from hostile.spoil import changed_json, hostile_json, linked, spoilt
from hostile.stock import Stock


@maker("run", 5)
def table_spoilt(folder: Path, draw: Random, stock: Stock) -> Path:
    place = Path(shutil.copytree(stock.run, folder / "run"))
    file = draw.choice(sorted(place.rglob("*.parquet")))
    content = file.read_bytes()
    # The footer is at the end.
    data = spoilt(content[::-1], draw, 6000)[::-1] if draw.random() < 0.6 else spoilt(content, draw, 400)
    file.write_bytes(data)
    return place


@maker("run", 3)
def table_hostile(folder: Path, draw: Random, stock: Stock) -> Path:
    """Parquet that inflates, lies about its rows, or holds other columns and types than declared."""
    place = Path(shutil.copytree(stock.run, folder / "run"))
    file = draw.choice(sorted(place.rglob("*.parquet")))
    table = pq.read_table(file, partitioning=None)
    column = draw.choice(table.column_names)
    at = table.schema.get_field_index(column)
    how: dict[str, Any] = {
        "compression": "zstd",
        "use_dictionary": draw.random() < 0.5,
        "store_schema": draw.random() < 0.7,
    }
    match draw.randrange(9):
        case 0:
            rows = 10_000_000
            table = pa.table({f.name: pa.nulls(rows, pa.int32()) if f.name != column else np.zeros(rows, np.int32)
                              for f in list(table.schema)[:2]})  # fmt: skip
        case 1:
            text = pa.array(["x" * (90 << 20)] + [""] * (len(table) - 1))
            table = table.set_column(at, column, text)
        case 2:
            text = pa.array(["x" * (1 << 20)] * len(table))
            table = table.set_column(at, column, text)
        case 3:
            kinds = (
                pa.string(),
                pa.int8(),
                pa.float64(),
                pa.list_(pa.int32()),
                pa.binary(9),
                pa.decimal128(9),
                pa.timestamp("ns"),
            )
            table = table.set_column(at, column, pa.nulls(len(table), draw.choice(kinds)))
        case 4:
            table = table.drop_columns([column])
        case 5:
            table = table.append_column("more/" + column, table.column(at))
        case 6:
            table = table.set_column(at, column, pa.nulls(len(table), table.schema.field(at).type))
        case 7:
            table = table.set_column(at, column, wild(table.column(at), draw))
        case 8:
            meta = {
                b"ARROW:extension:name": b"arrow.py_extension_type",
                b"ARROW:extension:metadata": pickle.dumps(Code(os.mkdir, str(folder / MARK))),
            }
            field = pa.field(column, table.schema.field(at).type, metadata=meta)
            table = table.set_column(at, field, table.column(at))
    pq.write_table(table, file, **how)
    if draw.random() < 0.2:
        file.write_bytes(spoilt(file.read_bytes()[::-1], draw, 4000)[::-1])
    return place


@maker("run", 2)
def pages_hostile(folder: Path, draw: Random, stock: Stock) -> Path:
    """Page headers that claim to inflate to gigabytes, under a footer that does not say so."""
    place = Path(shutil.copytree(stock.run, folder / "run"))
    file = draw.choice(sorted(place.rglob("*.parquet")))
    content = bytearray(file.read_bytes())
    heads = [at for at in range(4, len(content) - 8) if content[at] == 0x15 and content[at + 2] == 0x15]
    for at in draw.sample(heads, min(len(heads), 6)):
        # The i32 behind it as large as it goes, in as many bytes as there are.
        content[at + 3 : at + 5] = b"\xff\x7f"
        if draw.random() < 0.5:
            content[at + 3 : at + 8] = b"\xfe\xff\xff\xff\x0f"
    file.write_bytes(bytes(content))
    return place


_PARAMETERS = (
    '{"site": "state", "alpha": "a", "steps": "every"}', '{"site": [], "alpha": 1e999, "steps": "every"}',
    '{"site": "state", "alpha": -3, "steps": "every", "seed": 0}', '{"length": -1, "policy": "full", "window": null}',
    '{"length": 512, "policy": "window", "window": 0}', '{"length": [1], "policy": {}, "window": "a"}',
)  # fmt: skip
"""Of variants, as none is."""


def wild(column: pa.ChunkedArray, draw: Random) -> pa.Array:
    """Values of the same type that no probe stores: one of them, or all."""
    kind, held = column.type, column.to_pylist()
    if pa.types.is_dictionary(kind):
        values: tuple[Any, ...] = (
            "",
            "clean",
            "nonsense",
            "\n",
            "a/b",
            "x" * 5000,
            "[" * 5000,
            "{}",
            '{"alpha": "a"}',
            "null",
        )
    elif pa.types.is_boolean(kind):
        values = (True, False)
    elif pa.types.is_integer(kind):
        low = -(2 ** (kind.bit_width - 1))
        values = (0, -1, 1, low, -low - 1)
    else:
        values = (float("nan"), float("inf"), -1e38, 0.0, 1e-38)
    chosen = draw.choice(values)
    if draw.random() < 0.3:
        return pa.array([draw.choice(values) for _ in held], kind)
    if draw.random() < 0.5:
        return pa.array([chosen] * len(held), kind)
    place = draw.randrange(max(1, len(held)))
    return pa.array([chosen if at == place else item for at, item in enumerate(held)], kind)


@maker("run", 2)
def facts_spoilt(folder: Path, draw: Random, stock: Stock) -> Path:
    place = Path(shutil.copytree(stock.run, folder / "run"))
    facts = json.loads((place / "run.json").read_bytes())
    text = json.dumps(changed_json(facts, draw)).encode()
    (place / "run.json").write_bytes(spoilt(text, draw) if draw.random() < 0.3 else text)
    return place


@maker("run")
def facts_hostile(folder: Path, draw: Random, stock: Stock) -> Path:
    place = Path(shutil.copytree(stock.run, folder / "run"))
    file = place / "run.json" if draw.random() < 0.6 else draw.choice(sorted(place.rglob("*.parquet")))
    file.unlink()
    match draw.randrange(4):
        case 0:
            os.mkfifo(file)
        case 1:
            linked(file, draw)
        case 2:
            file.mkdir()
        case 3:
            file.write_bytes(hostile_json(draw))
    return place


@maker("report", 4)
@maker("run", 3)
def values_wild(folder: Path, draw: Random, stock: Stock) -> Path:
    """Sound Parquet with values that no probe stores."""
    place = Path(shutil.copytree(stock.rich, folder / "run"))
    files = sorted(place.rglob("*.parquet"))
    for file in draw.sample(files, draw.choice((1, 3, 12))):
        table = pq.read_table(file, partitioning=None)
        for column in draw.sample(table.column_names, draw.choice((1, 1, 2))):
            at = table.schema.get_field_index(column)
            table = table.set_column(at, column, wild(table.column(at), draw))
        pq.write_table(table, file, compression="zstd")
    return place


@maker("report", 3)
@maker("run", 2)
def facts_changed(folder: Path, draw: Random, stock: Stock) -> Path:
    place = Path(shutil.copytree(stock.rich, folder / "run"))
    facts = json.loads((place / "run.json").read_bytes())
    for _ in range(draw.choice((1, 1, 3))):
        facts = changed_json(facts, draw)
    (place / "run.json").write_text(json.dumps(facts))
    return place


@maker("report")
@maker("run")
def shards_missing(folder: Path, draw: Random, stock: Stock) -> Path:
    """Tables that are absent, empty, or of another prompt."""
    place = Path(shutil.copytree(stock.rich, folder / "run"))
    files = sorted(place.rglob("*.parquet"))
    for file in draw.sample(files, draw.choice((1, 3, 12))):
        match draw.randrange(3):
            case 0:
                file.unlink()
            case 1:
                pq.write_table(pq.read_table(file, partitioning=None).slice(0, 0), file)
            case 2:
                other = draw.choice([part for part in files if part.stem == file.stem or draw.random() < 0.1])
                file.write_bytes(other.read_bytes() if other.is_file() else b"")
    return place
