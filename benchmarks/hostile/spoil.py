"""Ways to spoil bytes, JSON and headers."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hostile.registry import Random

NOWHERE = ("/dev/zero", "/dev/stdin", "pipe", ".", "nothing", "/proc/self/mem", "/proc/self/environ")
"""Where a link can lead that never ends, holds nothing, or is not there."""


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
    if level == 0 and draw.random() < 0.03:
        deep: Any = []
        for _ in range(draw.choice((60, 300))):
            deep = draw.choice(([deep], {"a": deep}))
        return deep
    plain = [None, True, -1, 0, 2**31, 2**63, 10**30, 1e308, float("nan"), float("-inf")]
    plain += ["", "a", "\n", "../x", "\ud800"]
    if level > 3 or draw.random() < 0.6:
        return draw.choice(plain)
    if draw.random() < 0.5:
        return [value(draw, level + 1) for _ in range(draw.randrange(4))]
    return {draw.choice(("a", "rope_type", "0", "\n")): value(draw, level + 1) for _ in range(draw.randrange(4))}


def changed_json(content: Any, draw: Random) -> Any:
    """`content` with one value somewhere in it replaced, removed, or turned into another of its type."""
    if isinstance(content, dict) and content and draw.random() < 0.95:
        key = draw.choice(list(content))
        found = {name: item for name, item in content.items() if name != key}
        what = draw.random()
        if what < 0.08:
            return found
        return {**found, key: changed_json(content[key], draw) if what < 0.85 else value(draw)}
    if isinstance(content, list) and content and draw.random() < 0.9:
        place = draw.randrange(len(content))
        return [changed_json(item, draw) if i == place else item for i, item in enumerate(content)]
    return _another(content, draw) if draw.random() < 0.5 else value(draw)


def _another(content: Any, draw: Random) -> Any:
    """A value of the same type."""
    if isinstance(content, bool) or content is None:
        return not content
    if isinstance(content, int | float):
        return draw.choice((0, 1, -1, content + 1, 2 * content, 10**9, -(10**9), 1.5, float("nan"), float("inf")))
    if isinstance(content, str):
        return draw.choice(
            ("", content * 2, content[:-1], content.upper(), "\x1b[2J" + content, "[" + content, "x" * 3000, "\n")
        )
    return [content, content] if isinstance(content, list) else {}


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


def lying_header(whole: bytes, draw: Random) -> bytes:
    """A safetensors file whose header claims what is not there."""
    length = struct.unpack("<Q", whole[:8])[0]
    header, body = json.loads(whole[8 : 8 + length]), whole[8 + length :]
    entry = draw.choice([item for name, item in header.items() if name != "__metadata__"])
    big = draw.choice((2**31, 2**40, 2**62, 2**63, 2**64, 10**30, -1))
    match draw.randrange(9):
        case 0:
            return struct.pack("<Q", draw.choice((2**40, 2**63, 2**64 - 1))) + whole[8:]
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
            return struct.pack("<Q", len(text)) + text + body
        case 7:
            header |= {
                f"x.{i}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
                for i in range(draw.choice((1_000, 20_000)))
            }
        case 8:
            # The same shape and size at another's place.
            other = draw.choice([item for name, item in header.items() if name != "__metadata__"])
            entry["data_offsets"] = list(other["data_offsets"])
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


def sparse(file: Path, header: dict[str, Any], size: int) -> None:
    """A safetensors file with `size` bytes of holes behind its header; fewer where the file system does not allow it."""
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with file.open("wb") as stream:
        stream.write(struct.pack("<Q", len(text)) + text)
        try:
            stream.truncate(8 + len(text) + size)
        except OSError:
            stream.truncate(8 + len(text) + 1000)


def linked(file: Path, draw: Random, places: Iterable[str] = NOWHERE) -> None:
    """Put a link in the place of `file`; to a pipe beside it, to itself, or to one of `places`."""
    if file.is_dir() and not file.is_symlink():
        file.rename(file.with_name(f"{file.name}.before"))
    file.unlink(missing_ok=True)
    place = draw.choice((*places, file.name))
    if place == "pipe":
        os.mkfifo(file.with_name(f"{file.name}.pipe"))
        place = f"{file.name}.pipe"
    file.symlink_to(place)
