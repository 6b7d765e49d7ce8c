"""Files that lie: sound checkpoints, captures and runs, each spoilt by chance or by design, for benchmarks/fuzz.py."""

from __future__ import annotations

import io
import json
import os
import pickle
import random
import shutil
import struct
import sys
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from safetensors.torch import save, save_file

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from driftscope.cache import CacheKey, CaptureCache  # noqa: E402
from driftscope.schema import TABLES  # noqa: E402
from tests.checkpoints.layouts import stored  # noqa: E402
from tests.fake_run import Fake, write_fake_run  # noqa: E402

PLANTED = "planted.tensor"
"""The one tensor of a file outside the checkpoint: whoever reads it has left the folder."""
MARK = "code-ran"
"""What the code in a pickle makes."""
KEY = CacheKey.of("fuzz", "float32", [1], [3, 4, 5], 8)
Random = random.Random


@dataclass(frozen=True)
class Stock:
    """Sound files to start from, in folders that are never changed."""

    home: Path
    checkpoint: Mapping[str, bytes]
    """File name -> content: one safetensors, one torch.save archive, and their config."""
    quantised: Mapping[str, bytes]
    """The same drafter, its matrices in FP8 blocks and in packed integers."""
    capture: Path
    run: Path

    @classmethod
    def build(cls, home: Path) -> Stock:
        tensors, config = stored()
        buffer = io.BytesIO()
        torch.save({"state_dict": tensors, "config": config}, buffer)
        home.mkdir(parents=True)
        save_file({PLANTED: torch.ones(2, 2)}, home / "secret.safetensors")
        cache = CaptureCache(home / "capture")
        made = {"token_ids": torch.arange(12), "final": torch.randn(12, 8), "rms": torch.rand(4, 12)}
        made["near_tie"] = torch.zeros(12, dtype=torch.bool)
        about = {"name": "tiny", "dtype": "float32"}
        cache.write(KEY, made, {1: torch.randn(12, 8), 2: torch.randn(12, 8)}, target=about, meta={"length": 12})
        write_fake_run(home / "run", Fake(prompts=2, anchors=6, depth=3))
        files = {"model.safetensors": save(tensors), "model.pt": buffer.getvalue()}
        files["config.json"] = json.dumps(config).encode()
        quantised = {"model.safetensors": save(_quantised(tensors)), "config.json": files["config.json"]}
        return cls(home, files, quantised, home / "capture", home / "run")


def _quantised(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    found = dict(tensors)
    for number, name in enumerate(name for name in tensors if "_proj.weight" in name):
        stem, weight = name.removesuffix(".weight"), found.pop(name)
        if number % 2:
            found |= {name: weight.to(torch.float8_e4m3fn), f"{stem}.weight_scale_inv": torch.ones(1, 1)}
            continue
        words = torch.randint(-(2**31), 2**31, (len(weight), -(-weight.shape[1] // 8)), dtype=torch.int32)
        found |= {f"{stem}.weight_packed": words, f"{stem}.weight_shape": torch.tensor(weight.shape)}
        found[f"{stem}.weight_scale"] = torch.full((len(weight), 1), 0.1)
    return found


Maker = Callable[[Path, Random, Stock], Path]
"""Writes a case into an empty folder and returns what is to be opened."""
MAKERS: dict[str, list[tuple[str, Maker]]] = {"checkpoint": [], "capture": [], "run": []}


def maker(reader: str, weight: int = 1) -> Callable[[Maker], Maker]:
    """Register a maker; `weight` of them are drawn as often as that many others."""

    def register(function: Maker) -> Maker:
        MAKERS[reader] += [(function.__name__.replace("_", " "), function)] * weight
        return function

    return register


# Spoilt by chance


def spoilt(content: bytes, draw: Random, head: int | None = None) -> bytes:
    """Truncated, bits flipped, overwritten, doubled or cut; mostly in the first `head` bytes."""
    data = bytearray(content)
    for _ in range(draw.choice((1, 1, 1, 2, 4))):
        if not data:
            break
        limit = min(len(data), head) if head and draw.random() < 0.7 else len(data)
        at = draw.randrange(limit)
        match draw.randrange(6):
            case 0:
                del data[at:]
            case 1 | 2:
                data[at] ^= 1 << draw.randrange(8)
            case 3:
                width = draw.choice((1, 2, 4, 8))
                value = draw.choice((0, 1, 2 ** (8 * width) - 1, 2 ** (8 * width - 1), 2 ** (8 * width - 1) - 1))
                data[at : at + width] = value.to_bytes(width, "little")
            case 4:
                block = data[at : at + draw.randrange(1, 64)]
                data[at:at] = block * draw.choice((1, 2, 16))
            case 5:
                del data[at : at + draw.randrange(1, 64)]
    return bytes(data)


def value(draw: Random, level: int = 0) -> Any:
    """Anything that JSON can hold, and what it should not."""
    plain = [
        None,
        True,
        -1,
        0,
        2**31,
        2**63,
        10**30,
        1e308,
        float("nan"),
        float("-inf"),
        "",
        "a",
        "\n",
        "../x",
        "\ud800",
    ]
    if level > 3 or draw.random() < 0.6:
        return draw.choice(plain)
    if draw.random() < 0.5:
        return [value(draw, level + 1) for _ in range(draw.randrange(4))]
    return {draw.choice(("a", "rope_type", "0", "\n")): value(draw, level + 1) for _ in range(draw.randrange(4))}


def changed_json(content: Any, draw: Random) -> Any:
    """`content` with one value somewhere in it replaced, removed or renamed."""
    if isinstance(content, dict) and content and draw.random() < 0.9:
        key = draw.choice(list(content))
        found = {name: item for name, item in content.items() if name != key}
        what = draw.random()
        if what < 0.1:
            return found
        return {**found, key: changed_json(content[key], draw) if what < 0.6 else value(draw)}
    if isinstance(content, list) and content and draw.random() < 0.8:
        place = draw.randrange(len(content))
        return [changed_json(item, draw) if i == place else item for i, item in enumerate(content)]
    return value(draw)


def hostile_json(draw: Random) -> bytes:
    """JSON that costs more than it looks like, or is none."""
    return draw.choice(
        (
            b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
            b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
            b'{"a":[' + b"[]," * 2_500_000 + b"[]]}",
            b'{"a":[' + b"{}," * 1_000_000 + b"{}]}",
            b'{"a":' + b"9" * 100_000 + b"}",
            b'{"a": NaN, "b": -Infinity, "c": 1e999}',
            b'{"a": "' + b"\\ud800" * 1000 + b'"}',
            b"\xff\xfe{\x00}\x00",
            b"",
            b"[]",
            b"null",
            b" " * 5_000_000 + b"{}",
            b'{"schema_version": 1' + b" " * 9_000_000,
        )
    )


def written(folder: Path, files: Mapping[str, bytes]) -> Path:
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


# Checkpoints


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
    whole = stock.checkpoint["model.safetensors"]
    length = struct.unpack("<Q", whole[:8])[0]
    header, body = json.loads(whole[8 : 8 + length]), whole[8 + length :]
    name = draw.choice(list(header))
    entry = header[name] = dict(header[name])
    big = draw.choice((2**31, 2**40, 2**62, 2**63, 2**64, 10**30, -1))
    match draw.randrange(8):
        case 0:
            return written(
                folder, {"model.safetensors": struct.pack("<Q", draw.choice((2**40, 2**63, 2**64 - 1))) + whole[8:]}
            )
        case 1:
            entry["data_offsets"] = [draw.choice((0, big)), big]
        case 2:
            entry["shape"] = draw.choice(([big], [big, big], [2**32, 2**32], [0, big], [[1]], ["1"], [1.5]))
        case 3:
            entry["dtype"] = draw.choice(("F64", "F4", "U8", "", "C64", "\ud800", 3))
        case 4:
            header[draw.choice(("../../x", "\x00", "a" * 100_000, "model." * 500))] = entry
        case 5:
            header["__metadata__"] = value(draw)
        case 6:
            text = b'{"a":' + draw.choice((b"[", b'{"a":')) * 200_000
            return written(folder, {"model.safetensors": struct.pack("<Q", len(text)) + text + body})
        case 7:
            header |= {f"x.{i}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for i in range(60_000)}
    text = json.dumps(header).encode()
    config = {"config.json": stock.checkpoint["config.json"]}
    return written(folder, config | {"model.safetensors": struct.pack("<Q", len(text)) + text + body})


@maker("checkpoint")
def huge_and_sparse(folder: Path, draw: Random, stock: Stock) -> Path:
    """A sound header over terabytes that the disk does not hold."""
    size = draw.choice((2**34, 2**40, 2**42))
    text = json.dumps({"fc.weight": {"dtype": "F32", "shape": [size // 64, 16], "data_offsets": [0, size]}}).encode()
    text += b" " * (-len(text) % 8)
    with (folder / "model.safetensors").open("wb") as stream:
        stream.write(struct.pack("<Q", len(text)) + text)
        # A file system may not allow it.
        with_size = 8 + len(text) + (size if draw.random() < 0.5 else 1000)
        try:
            stream.truncate(with_size)
        except OSError:
            stream.truncate(8 + len(text) + 1000)
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
    os.mkfifo(folder / "pipe")
    (folder / name).symlink_to(
        draw.choice(("/dev/zero", "/dev/stdin", "pipe", name, ".", "nothing", "/proc/self/mem", "/proc/self/environ"))
    )
    return folder if draw.random() < 0.7 else folder / name


class Code:
    """Makes the mark when it is unpickled, in one of several ways."""

    def __init__(self, call: Callable[..., Any], *arguments: Any) -> None:
        self.made = call, arguments

    def __reduce__(self) -> Any:
        return self.made


def _payload(folder: Path, draw: Random) -> Code:
    mark = str(folder / MARK)
    return draw.choice(
        (
            Code(os.mkdir, mark),
            Code(os.system, f"touch {mark}"),
            Code(eval, f"__import__('os').mkdir({mark!r})"),
            Code(exec, f"open({mark!r}, 'w')"),
            Code(torch.load, str(folder / "model.pt")),
            Code(torch.hub.download_url_to_file, "file:///etc/hostname", mark),
            Code(io.open, mark, "w"),
            Code(Path.touch, Path(mark)),
        )
    )


@maker("checkpoint", 2)
def code_in_pickle(folder: Path, draw: Random, stock: Stock) -> Path:
    """Code in a pickle, bare, in an archive, and behind names that look harmless."""
    tensors, config = stored()
    payload = _payload(folder, draw)
    held: Any = draw.choice(
        (
            tensors | {"hook": payload},
            {"state_dict": tensors, "config": {**config, "x": payload}},
            OrderedDict([*tensors.items(), ("x.y", payload)]),
            payload,
        )
    )
    name = draw.choice(("model.pt", "pytorch_model.bin", "model.safetensors"))
    protocol = draw.choice((0, 1, 2, 3, 4, 5))
    if draw.random() < 0.3:
        return written(folder, {name: pickle.dumps(held, protocol)})
    torch.save(held, folder / name, pickle_protocol=max(2, protocol))
    if draw.random() < 0.3:
        (folder / name).write_bytes(spoilt((folder / name).read_bytes(), draw, 2000))
    return folder


@maker("checkpoint", 2)
def pickle_hostile(folder: Path, draw: Random, stock: Stock) -> Path:
    """An archive whose pickle asks for memory, depth or names."""
    blob = draw.choice(
        (
            b"\x80\x04\x8e" + struct.pack("<Q", 2**60) + b"x.",  # bytes of a length
            b"\x80\x04\x8d" + struct.pack("<Q", 2**60) + b"x.",  # text of a length
            b"\x80\x02\x8b" + struct.pack("<I", 2**31 - 1) + b"x.",  # a long number
            b"\x80\x02" + b"](" * 200_000 + b"e" * 200_000 + b".",  # lists in lists
            b"\x80\x02" + b"(" * 500_000 + b".",
            b"\x80\x02cos\nsystem\n(X\x01\x00\x00\x00atR.",
            b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x04true\x85R.",
            b"\x80\x04\x8c\x05torch\x8c\x06Tensor\x93)\x81}b.",
            b"\x80\x02ctorch._utils\n_rebuild_parameter\n(K\x01K\x02K\x03tR.",
            b"\x80\x02ctorch\nSize\n(](" + b"J\xff\xff\xff\x7f" * 1000 + b"etR.",
            b"\x80\x02\x82\x01.",  # an extension of copyreg
            b"\x80\x02}r\xff\xff\xff\x7f.",
            b"\x80\x02q\x00" * 3,
            b"\x80\xff}.",
            b"",
        )
    )
    buffer = io.BytesIO()
    with zipfile.ZipFile(
        buffer, "w", draw.choice((zipfile.ZIP_STORED, zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
    ) as archive:
        archive.writestr("model/data.pkl", blob)
        archive.writestr(
            draw.choice(("model/version", "../../evil", "/etc/x", "model/data/0", "model/data.pkl2")), b"3\n"
        )
    return written(folder, {"model.pt": buffer.getvalue()})


@maker("checkpoint")
def tensors_hostile(folder: Path, draw: Random, stock: Stock) -> Path:
    """A state dict that torch.save writes and nobody should: views without end, sparse, quantised, NaN."""
    tensors, _ = stored()
    one = torch.ones(1)
    tensors[draw.choice(list(tensors))] = draw.choice(
        (
            one.expand(10**6, 10**6), torch.eye(3).to_sparse(), torch.eye(3).to_sparse_csr(), torch.full((4, 4), float("nan")),
            torch.ones(3, dtype=torch.complex64),
            torch.ones(0, 10**6), torch.empty(5, 5, device="meta"), torch.ones(2, 2).T.conj(), one.as_strided((1000, 1000), (0, 0)),
        )
    )  # fmt: skip
    torch.save(tensors, folder / "model.pt")
    return written(folder, {"config.json": stock.checkpoint["config.json"]})


# Captures


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
            file.unlink()
            file.symlink_to(draw.choice(("/dev/zero", file.name, "/proc/self/mem")))
        case 4:
            for json_file in place.rglob("*.json"):
                json_file.write_bytes(hostile_json(draw))
    return place


# Runs


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
    declared = TABLES[file.stem]
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
            rows = 30_000_000
            table = pa.table({f.name: pa.nulls(rows, pa.int32()) if f.name != column else np.zeros(rows, np.int32)
                              for f in list(table.schema)[:2]})  # fmt: skip
        case 1:
            text = pa.array(["x" * (150 << 20)] + [""] * (len(table) - 1))
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
            kind = declared.column(column)
            if kind is not None and pa.types.is_floating(kind.type):
                wild = pa.array(
                    [draw.choice((float("nan"), float("inf"), -1e38, 0.0)) for _ in range(len(table))], kind.type
                )
                table = table.set_column(at, column, wild)
            elif kind is not None and pa.types.is_integer(kind.type):
                low = -(2 ** (kind.type.bit_width - 1))
                wild = pa.array([draw.choice((0, -1, low, -low - 1)) for _ in range(len(table))], kind.type)
                table = table.set_column(at, column, wild)
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
            file.symlink_to(draw.choice(("/dev/zero", file.name, ".", "nothing", "/proc/self/mem")))
        case 2:
            file.mkdir()
        case 3:
            file.write_bytes(hostile_json(draw))
    return place
