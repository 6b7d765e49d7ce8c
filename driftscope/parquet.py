"""Parquet files of a run, opened as files that anyone may have written.

A few kilobytes can claim, or inflate to, any amount of memory: what the footer and every page header claim is added up
before anything is decoded. Layout of the headers: the Parquet format's parquet.thrift, in Thrift's compact protocol.
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from driftscope.errors import RunError
from driftscope.schema import STRING, Table, table_named
from driftscope.untrusted import check_regular

_SPARE = 64 * 2**20
_WIDEST = 8
"""Bytes of a decoded value; strings stay dictionaries, so theirs is an index."""
_MAX_LIST = 100_000
_MAX_TEXT = 2**24


def stored_columns(file: Path, declared: Table) -> list[str]:
    """The declared columns that a file holds, in its order.

    Raises:
        RunError: not Parquet, or a column of another type than the declared one.
    """
    with _told(file):
        return _columns(_open(file, declared), file, declared)


def read_columns(file: Path, declared: Table, names: Sequence[str] | None = None) -> pa.Table:
    """Those of `names` that a file holds; without names every declared column.

    Raises:
        RunError: damaged, of other types than declared, or claiming far more than the file holds.
    """
    with _told(file):
        held = _open(file, declared)
        chosen = [name for name in _columns(held, file, declared) if names is None or name in names]
        _check_claims(held, file, chosen)
        # Threads and read-ahead cost several times what they save on files of this size.
        return held.read(chosen, use_threads=False)


class _told:
    """Whatever goes wrong in reading a file as one line that names it."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        # Arrow also passes on what C++ throws, such as a bad allocation or a key it does not know.
        if isinstance(error, (OSError, pa.ArrowException, MemoryError, ValueError, KeyError, IndexError)):
            reason = getattr(error, "strerror", None) or (str(error).splitlines() or [type(error).__name__])[0]
            raise _refused(self.file, reason[:200]) from error


def _refused(file: Path, reason: str) -> RunError:
    return RunError(f"cannot read {file}: {reason}; delete {file.parent} and measure it again with --resume")


def _open(file: Path, declared: Table) -> pq.ParquetFile:
    check_regular(file, RunError)
    text = [column.name for column in declared.columns if column.type == STRING]
    return pq.ParquetFile(
        file,
        pre_buffer=False,
        # A string that is stored once and repeated a million times stays one string.
        read_dictionary=text,
        thrift_string_size_limit=_MAX_TEXT,
        thrift_container_size_limit=_MAX_LIST,
        page_checksum_verification=True,
    )


def _columns(held: pq.ParquetFile, file: Path, declared: Table) -> list[str]:
    schema = held.schema_arrow
    if held.metadata.num_columns != len(schema):
        raise _refused(file, "it has columns inside columns")
    found = []
    for name, kind in zip(schema.names, schema.types, strict=True):
        expected = _declared_type(declared.name, name)
        if expected is None:
            continue
        if kind != expected:
            raise _refused(file, f"column {name} is {kind}, expected {expected}")
        found.append(name)
    if len(set(found)) != len(found):
        raise _refused(file, "a column is there twice")
    needed = [c.name for c in declared.columns if c.family is None and not c.nullable and c.name not in found]
    if needed:
        raise _refused(file, f"column {needed[0]} is missing")
    return found


@lru_cache(maxsize=4096)
def _declared_type(table: str, name: str) -> pa.DataType | None:
    column = table_named(table).column(name)
    return None if column is None else column.type


def _check_claims(held: pq.ParquetFile, file: Path, names: Sequence[str]) -> None:
    footer = held.metadata
    size = file.stat().st_size
    limit = 2 * size + _SPARE
    if footer.num_rows * max(1, len(names)) * _WIDEST > limit:
        raise _refused(file, f"it claims {footer.num_rows:,} rows in {size:,} bytes")
    wanted = set(names)
    places = [place for place, name in enumerate(held.schema_arrow.names) if name in wanted]
    inflated = 0
    with file.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
        for group in range(footer.num_row_groups):
            part = footer.row_group(group)
            for place in places:
                chunk = part.column(place)
                start = chunk.dictionary_page_offset or chunk.data_page_offset
                inflated += _inflated(content, start, start + chunk.total_compressed_size)
                if inflated > limit or chunk.num_values * _WIDEST > limit:
                    raise _refused(file, f"its pages claim {inflated:,} bytes, in a file of {size:,}")


def _inflated(content: mmap.mmap, at: int, end: int) -> int:
    """Bytes that the pages of a column between two offsets claim to hold once they are decompressed."""
    if not 0 < at <= end <= len(content):
        raise ValueError("a column lies outside the file")
    total = 0
    while at < end:
        sizes = [0, 0, 0]
        for number in range(3):
            # Type, uncompressed and compressed size: the fields 1 to 3, each an i32.
            if content[at] != 0x15:
                raise ValueError("a page without a header")
            sizes[number], at = _integer(content, at + 1)
        at = _skip_fields(content, at) + sizes[2]
        if min(sizes) < 0:
            raise ValueError("a page of negative size")
        total += sizes[1]
    return total


def _varint(content: mmap.mmap, at: int) -> tuple[int, int]:
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


def _integer(content: mmap.mmap, at: int) -> tuple[int, int]:
    value, at = _varint(content, at)
    return (value >> 1) ^ -(value & 1), at


def _skip_fields(content: mmap.mmap, at: int, level: int = 0) -> int:
    """Behind the stop byte of the struct whose next field starts at `at`."""
    if level > 8:
        raise ValueError("a page header nested too deeply")
    while (head := content[at]) != 0:
        at += 1
        if head >> 4 == 0:
            _, at = _integer(content, at)
        at = _skip_value(content, at, head & 0x0F, level)
    return at + 1


def _skip_value(content: mmap.mmap, at: int, kind: int, level: int) -> int:
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
