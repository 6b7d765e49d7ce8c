"""Parquet files of a run, opened as files that anyone may have written.

A few kilobytes can claim, or inflate to, any amount of memory: what the footer and every page header claim is added up
before anything is decoded.
"""

from __future__ import annotations

import mmap
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from driftscope.errors import RunError
from driftscope.files.json import check_regular
from driftscope.files.parquet_pages import Content, inflated
from driftscope.runs.columns import STRING, Table
from driftscope.runs.schema import table_named

_SPARE = 64 * 2**20
_WIDEST = 8
"""Bytes of a decoded value; strings stay dictionaries, so theirs is an index."""
_MAX_LIST = 100_000
_MAX_TEXT = 2**24
_SMALL = 2**18
"""Bytes up to which a file is read at once."""


def write_table(file: Path, table: pa.Table) -> None:
    """Store a table so that it is read back quickly: shards are many and small, and what they hold is read as a whole.

    Numbers hardly repeat, so that a dictionary makes them larger; where none is null it need not be asked of each whether it
    is; nobody skips pages by their statistics.
    """
    fields = [field.with_nullable(table[field.name].null_count > 0) for field in table.schema]
    text = [field.name for field in fields if field.type == STRING]
    options = {"compression": "snappy", "write_statistics": False, "write_page_checksum": True}
    pq.write_table(table.cast(pa.schema(fields)), file, use_dictionary=text, **options)


def read_columns(file: Path, declared: Table, names: Collection[str] | None = None) -> tuple[list[str], pa.Table]:
    """The declared columns that a file holds, in its order, and the data of those of them that are among `names`; `rms/` stands
    for its family, and without names it is all of them.

    Raises:
        RunError: damaged, not Parquet, of other types than declared, or claiming far more than the file holds.
    """
    with _told(file), _content(file) as content:
        held = _open(file if isinstance(content, mmap.mmap) else pa.BufferReader(content), declared)
        places = _columns(held, file, declared)
        chosen = list(places) if names is None else chosen_of(places, names)
        _check_claims(held, file, content, [places[name] for name in chosen])
        # Threads and read-ahead cost several times what they save on files of this size.
        return list(places), held.read(chosen, use_threads=False)


def chosen_of(held: Collection[str], names: Collection[str]) -> list[str]:
    """Those of `held` that `names` name, in the order of `held`; `rms/` stands for its family."""
    families = tuple(name for name in names if name.endswith("/"))
    return [name for name in held if name in names or (families and name.startswith(families))]


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


@contextmanager
def _content(file: Path) -> Iterator[Content]:
    """The bytes of a small file; a large one, of which perhaps a few columns are wanted, is mapped."""
    small = check_regular(file, RunError) <= _SMALL
    with file.open("rb", buffering=0) as stream:
        if small:
            yield stream.read()
            return
        with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
            yield content


def _open(source: Path | pa.BufferReader, declared: Table) -> pq.ParquetFile:
    text = [column.name for column in declared.columns if column.type == STRING]
    return pq.ParquetFile(
        source,
        pre_buffer=False,
        # A string that is stored once and repeated a million times stays one string.
        read_dictionary=text,
        thrift_string_size_limit=_MAX_TEXT,
        thrift_container_size_limit=_MAX_LIST,
        page_checksum_verification=True,
    )


def _columns(held: pq.ParquetFile, file: Path, declared: Table) -> dict[str, int]:
    """Declared columns and their places. Shards of a run look alike: what was found sound is not looked at again."""
    schema = held.schema_arrow
    if held.metadata.num_columns != len(schema):
        raise _refused(file, "it has columns inside columns")
    known = _sound.get(declared.name)
    if known is None or not schema.equals(known[0]):
        known = _sound[declared.name] = schema, _checked(schema, file, declared)
    return known[1]


_sound: dict[str, tuple[pa.Schema, dict[str, int]]] = {}


def _checked(schema: pa.Schema, file: Path, declared: Table) -> dict[str, int]:
    found = {}
    for place, (name, kind) in enumerate(zip(schema.names, schema.types, strict=True)):
        expected = _declared_type(declared.name, name)
        if expected is None:
            continue
        if kind != expected:
            raise _refused(file, f"column {name} is {kind}, expected {expected}")
        if name in found:
            raise _refused(file, "a column is there twice")
        found[name] = place
    needed = [c.name for c in declared.columns if c.family is None and not c.nullable and c.name not in found]
    if needed:
        raise _refused(file, f"column {needed[0]} is missing")
    return found


@lru_cache(maxsize=4096)
def _declared_type(table: str, name: str) -> pa.DataType | None:
    column = table_named(table).column(name)
    return None if column is None else column.type


def _check_claims(held: pq.ParquetFile, file: Path, content: Content, places: Sequence[int]) -> None:
    footer = held.metadata
    size = len(content)
    limit = 2 * size + _SPARE
    if footer.num_rows * max(1, len(places)) * _WIDEST > limit:
        raise _refused(file, f"it claims {footer.num_rows:,} rows in {size:,} bytes")
    claimed = 0
    for group in range(footer.num_row_groups):
        part = footer.row_group(group)
        for place in places:
            chunk = part.column(place)
            if chunk.num_values == chunk.total_compressed_size == 0:
                # A table without rows has no pages.
                continue
            start = chunk.dictionary_page_offset or chunk.data_page_offset
            claimed += inflated(content, start, start + chunk.total_compressed_size)
            if claimed > limit or chunk.num_values * _WIDEST > limit:
                raise _refused(file, f"its pages claim {claimed:,} bytes, in a file of {size:,}")
