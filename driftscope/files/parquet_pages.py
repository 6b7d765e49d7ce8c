"""What the page headers of a Parquet file claim, added up without decoding anything. Layout of the headers: the Parquet format's
parquet.thrift, in Thrift's compact protocol."""

from __future__ import annotations

import mmap
import re
from collections.abc import Iterable

Content = bytes | mmap.mmap


def _of_kinds(*kinds: int) -> bytes:
    """The first byte of a field of these kinds, its number told by the distance to the field before."""
    return b"[" + b"".join(b"\\x%02x" % (step << 4 | kind) for step in range(1, 16) for kind in kinds) + b"]"


def _either(parts: Iterable[bytes]) -> bytes:
    return b"(?:" + b"|".join(parts) + b")"


_NUMBER = rb"[\x80-\xff]{0,9}[\x00-\x7f]"
_BYTES = _either(b"\\x%02x.{%d}" % (length, length) for length in (4, 8, *range(64)))
_FIELD = _either((_of_kinds(4, 5, 6) + _NUMBER, _of_kinds(1, 2), _of_kinds(8) + _BYTES))
_STRUCT = _either((_FIELD, _of_kinds(12) + _FIELD + rb"*+\x00"))
# Type, uncompressed and compressed size, each an i32, then checksum and what only one type of page has.
_HEADER = re.compile(
    rb"\x15[\x00\x02\x04\x06]\x15(" + _NUMBER + rb")\x15(" + _NUMBER + rb")"
    + _either((_FIELD, _of_kinds(12) + _STRUCT + rb"*+\x00")) + rb"*+\x00",
    re.DOTALL,
)  # fmt: skip
"""A header as writers make it; any other takes the way field by field, which says the same and takes ten times as long."""


def inflated(content: Content, at: int, end: int) -> int:
    """Bytes that the pages of a column between two offsets claim to hold once they are decompressed.

    Raises ValueError or IndexError where there is no page header.
    """
    if not 0 < at <= end <= len(content):
        raise ValueError("a column lies outside the file")
    total = 0
    while at < end:
        usual = _HEADER.match(content, at)
        if usual:
            claimed, stored, at = _signed(usual[1]), _signed(usual[2]), usual.end()
        else:
            claimed, stored, at = _slowly(content, at)
        if min(claimed, stored) < 0:
            raise ValueError("a page of negative size")
        at += stored
        total += claimed
    return total


def _slowly(content: Content, at: int) -> tuple[int, int, int]:
    """Uncompressed and compressed size, and the place behind the header."""
    sizes = [0, 0, 0]
    for number in range(3):
        if content[at] != 0x15:
            raise ValueError("a page without a header")
        sizes[number], at = _integer(content, at + 1)
    if sizes[0] < 0:
        raise ValueError("a page of no kind")
    return sizes[1], sizes[2], _skip_fields(content, at)


def _signed(digits: bytes) -> int:
    value = 0
    for byte in reversed(digits):
        value = value << 7 | byte & 0x7F
    return (value >> 1) ^ -(value & 1)


def _varint(content: Content, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = content[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a number without an end")


def _integer(content: Content, at: int) -> tuple[int, int]:
    value, at = _varint(content, at)
    return (value >> 1) ^ -(value & 1), at


def _skip_fields(content: Content, at: int, level: int = 0) -> int:
    """Behind the stop byte of the struct whose next field starts at `at`."""
    if level > 8:
        raise ValueError("a page header nested too deeply")
    while (head := content[at]) != 0:
        at += 1
        if head >> 4 == 0:
            _, at = _integer(content, at)
        at = _skip_value(content, at, head & 0x0F, level)
    return at + 1


def _skip_value(content: Content, at: int, kind: int, level: int) -> int:
    if kind in (1, 2):  # true, false: in the field's own byte
        return at
    if kind == 3:  # a byte
        return at + 1
    if kind in (4, 5, 6):  # i16, i32, i64
        return _varint(content, at)[1]
    if kind == 7:  # double
        return at + 8
    if kind == 8:  # bytes
        length, at = _varint(content, at)
        return at + length
    if kind == 12:
        return _skip_fields(content, at, level + 1)
    raise ValueError(f"a page header with a value of kind {kind}")
