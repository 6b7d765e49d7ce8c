"""Pickles with code in them, pickles that ask for more than they are, and tensors that nobody should store."""

from __future__ import annotations

import io
import os
import pickle
import struct
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import torch

from hostile.registry import MARK, Code, Random, maker, written
from hostile.spoil import spoilt
from hostile.stock import Stock
from tests.checkpoints.layouts import stored


def payload(folder: Path, draw: Random) -> Code:
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
    code = payload(folder, draw)
    held: Any = draw.choice(
        (
            tensors | {"hook": code},
            {"state_dict": tensors, "config": {**config, "x": code}},
            OrderedDict([*tensors.items(), ("x.y", code)]),
            code,
        )
    )
    name = draw.choice(("model.pt", "pytorch_model.bin", "model.safetensors"))
    return written(folder, {name: pickled(held, draw)})


def pickled(held: Any, draw: Random) -> bytes:
    """As a bare pickle or as torch.save writes it, sometimes damaged."""
    protocol = draw.choice((0, 1, 2, 3, 4, 5))
    if draw.random() < 0.3:
        return pickle.dumps(held, protocol)
    buffer = io.BytesIO()
    torch.save(held, buffer, pickle_protocol=max(2, protocol))
    return spoilt(buffer.getvalue(), draw, 2000) if draw.random() < 0.3 else buffer.getvalue()


@maker("checkpoint", 2)
def pickle_hostile(folder: Path, draw: Random, stock: Stock) -> Path:
    """An archive whose pickle asks for memory, depth or names."""
    return written(folder, {"model.pt": demanding(draw)})


def demanding(draw: Random) -> bytes:
    """A zip archive around a pickle that asks for memory, depth or names."""
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
    return buffer.getvalue()


@maker("checkpoint")
def tensors_hostile(folder: Path, draw: Random, stock: Stock) -> Path:
    """A state dict that torch.save writes and nobody should: views without end, sparse, quantised, NaN."""
    tensors, _ = stored()
    tensors[draw.choice(list(tensors))] = odd_tensor(draw)
    torch.save(tensors, folder / "model.pt")
    return written(folder, {"config.json": stock.checkpoint["config.json"]})


def odd_tensor(draw: Random) -> torch.Tensor:
    """A tensor that claims more than it holds, or of a kind that holds no numbers."""
    one = torch.ones(1)
    return draw.choice(
        (
            one.expand(10**6, 10**6), torch.eye(3).to_sparse(), torch.eye(3).to_sparse_csr(), torch.full((4, 4), float("nan")),
            torch.ones(3, dtype=torch.complex64), torch.ones(0, 10**6), torch.empty(5, 5, device="meta"),
            torch.ones(2, 2).T.conj(), one.as_strided((1000, 1000), (0, 0)), torch.tensor(7.0),
            torch.ones(2, 2).to(torch.float8_e5m2),
        )
    )  # fmt: skip
