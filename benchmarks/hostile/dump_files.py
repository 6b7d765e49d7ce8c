"""Dumps whose files are damaged, swell, lead elsewhere, hold code, or do not go with what lies beside them."""

from __future__ import annotations

import gzip
import os
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch

from hostile.dumps import copied, files_of, states_of, stored
from hostile.pickles import demanding, payload, pickled
from hostile.registry import Random, maker
from hostile.spoil import linked, lying_header, sparse, spoilt
from hostile.stock import DUMPS, Stock

_SAFE = ("vllm", "speculators")
_PICKLED = tuple(name for name in DUMPS if name not in _SAFE)


@maker("dump", 6)
def files_spoilt(folder: Path, draw: Random, stock: Stock) -> Path:
    _, dump = copied(folder, draw, stock)
    files = files_of(dump)
    for path in draw.sample(files, draw.choice((1, 1, min(2, len(files))))):
        path.write_bytes(spoilt(path.read_bytes(), draw, 3000))
    return dump


@maker("dump", 2)
def headers_hostile(folder: Path, draw: Random, stock: Stock) -> Path:
    """A safetensors header that claims what is not there."""
    _, dump = copied(folder, draw, stock, _SAFE)
    file = draw.choice(states_of(dump))
    file.write_bytes(lying_header(file.read_bytes(), draw))
    return dump


@maker("dump")
def states_sparse(folder: Path, draw: Random, stock: Stock) -> Path:
    """A text of millions of tokens that the disk does not hold."""
    _, dump = copied(folder, draw, stock, _SAFE)
    file = draw.choice(states_of(dump))
    length = draw.choice((2**14, 2**22, 2**28, 2**33))
    ids, states = 8 * length, 4 * 32 * 4 * length
    header = {
        "token_ids": {"dtype": "I64", "shape": [length], "data_offsets": [0, ids]},
        "hidden_states": {"dtype": "F32", "shape": [length, 4, 32], "data_offsets": [ids, ids + states]},
    }
    sparse(file, header, ids + states)
    return dump


@maker("dump", 3)
def code_in_dump(folder: Path, draw: Random, stock: Stock) -> Path:
    """Code in a pickle, bare, in an archive, and in gzip."""
    _, dump = copied(folder, draw, stock, _PICKLED)
    file = draw.choice(states_of(dump))
    code = payload(folder, draw)
    held: Any = draw.choice(({"input_ids": code}, {"batch": {"input_ids": code}}, {"hidden_states": [code]}, code))
    content = pickled(held, draw)
    file.write_bytes(gzip.compress(content, 1) if file.suffix == ".gz" else content)
    return dump


@maker("dump", 2)
def pickles_hostile(folder: Path, draw: Random, stock: Stock) -> Path:
    """A pickle that asks for memory, depth or names."""
    _, dump = copied(folder, draw, stock, _PICKLED)
    file = draw.choice(states_of(dump))
    file.write_bytes(gzip.compress(demanding(draw), 1) if file.suffix == ".gz" else demanding(draw))
    return dump


@maker("dump", 2)
def gzip_swells(folder: Path, draw: Random, stock: Stock) -> Path:
    """Gzip around zeros, noise, itself, or states that shrink as none do."""
    _, dump = copied(folder, draw, stock, ("specforge packed",))
    file = draw.choice(states_of(dump))
    noise = random.Random(draw.random()).randbytes(1 << 20)
    match draw.randrange(6):
        case 0:
            file.write_bytes(gzip.compress(bytes(200 << 20), 1))
        case 1:
            file.write_bytes(gzip.compress(noise, 1) + gzip.compress(bytes(100 << 20), 1))
        case 2:
            file.write_bytes(gzip.compress(file.read_bytes(), 1))
        case 3:
            file.write_bytes(file.read_bytes()[: draw.randrange(400)])
        case 4:
            file.write_bytes(file.read_bytes() + noise)
        case 5:
            rows = draw.choice((200, 250, 100_000))
            aux, last = torch.zeros(1, rows, 96), torch.zeros(1, rows, 32)
            mask = (torch.arange(rows) > rows - draw.choice((30, 100))).long()
            held = {
                "input_ids": torch.zeros(rows).long(),
                "aux_hidden_state": aux,
                "hidden_state": last,
                "loss_mask": mask,
            }
            # Noise makes room for more zeros.
            stored(file, {**held, "noise": torch.frombuffer(bytearray(noise), dtype=torch.uint8)})
    return dump


@maker("dump", 4)
def data_set_hostile(folder: Path, draw: Random, stock: Stock) -> Path:
    """The Arrow data set that says where answers start: other types, rows and sizes, compressed, or no file."""
    _, dump = copied(folder, draw, stock, ("speculators",))
    data = next(dump.glob("*.arrow"))
    table = pa.ipc.open_stream(data.read_bytes()).read_all()
    name = draw.choice(table.column_names)
    at = table.schema.get_field_index(name)
    rows, values = len(table), table.column(at).to_pylist()
    options = None
    match draw.randrange(9):
        case 0:
            data.write_bytes(spoilt(data.read_bytes(), draw, 2000))
            return dump
        case 1:
            linked(data, draw)
            return dump
        case 2:
            zeros = pa.array([[0] * (draw.choice((3, 40)) << 20)] * rows, pa.list_(pa.int64()))
            table = table.set_column(at, name, zeros)
            options = pa.ipc.IpcWriteOptions(compression=draw.choice(("zstd", "lz4")))
        case 3:
            odd: tuple[Any, ...] = (
                pa.nulls(rows), pa.array(["text"] * rows), pa.array([[values[0]]] * rows), pa.array([[None, 1]] * rows),
                pa.array([1.5] * rows), pa.array([[float("nan")]] * rows), pa.array([["a"]] * rows), pa.array([{"a": 1}] * rows),
                pa.array([None] * rows, pa.list_(pa.int64())), pa.array([[2**63]] * rows, pa.list_(pa.uint64())),
                pa.array([b"x"] * rows), pa.array(["a"] * rows).dictionary_encode(), pa.array([[True]] * rows),
                pa.array([[]] * rows),
            )  # fmt: skip
            table = table.set_column(at, name, draw.choice(odd))
        case 4:
            table = table.drop_columns([name])
        case 5:
            table = draw.choice((table.slice(0, 1), table.slice(0, 0), pa.concat_tables([table] * 3)))
        case 6:
            cut = draw.choice((0, 1, -1))
            table = table.set_column(at, name, pa.array([row[:cut] for row in values], pa.list_(pa.int64())))
        case 7:
            kind = draw.choice((pa.int8(), pa.int32(), pa.float64(), pa.uint8()))
            table = table.set_column(at, name, pa.array(values, draw.choice((pa.list_, pa.large_list))(kind)))
        case 8:
            (dump.parent / "data-00001-of-00002.arrow").write_bytes(data.read_bytes())
            table = table.append_column(name, table.column(at))
    with pa.OSFile(str(data), "wb") as sink, pa.ipc.new_stream(sink, table.schema, options=options) as out:
        out.write_table(table)
    return dump


@maker("dump", 2)
def names_hostile(folder: Path, draw: Random, stock: Stock) -> Path:
    """Links, folders and names that no peer gives."""
    _, dump = copied(folder, draw, stock)
    file = draw.choice(states_of(dump))
    match draw.randrange(6):
        case 0:
            linked(file, draw)
        case 1:
            file.rename(file.with_name(f"was-{file.name}.before"))
            file.mkdir()
        case 2:
            (dump / "loop").symlink_to(".")
            (dump / "elsewhere").symlink_to(stock.home)
        case 3:
            stem = draw.choice(
                ("hs_²", "hs_" + "9" * 200, "hs_-1", "hs_٣", "a\nb", "\x1b[2J", " ", "a" * 240, "😀", "row 1 row 2")
            )
            file.rename(file.with_name(f"{stem}{file.suffix}"))
        case 4:
            os.rename(file, os.fsencode(file.parent) + b"/\xff\xfe" + os.fsencode(file.suffix))
        case 5:
            for number in range(3000):
                (dump / f"{number}.pt").touch()
    return dump
