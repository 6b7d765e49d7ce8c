"""Rows of a Parquet file of prompts, such as SPEED-Bench is published in. Anyone may have written it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from driftscope.errors import PromptError
from driftscope.files.json import check_regular
from driftscope.files.parquet_pages import inflated

_LARGEST = 1 << 30
_ROWS = 1_000_000
_AT_ONCE = 256


def parquet_rows(path: Path, keys: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """Of every row the columns among `keys`. Raises PromptError for what is no Parquet file, has none of them, or claims to hold
    more than anyone prompts with."""
    try:
        size = check_regular(path, PromptError)
        if size > _LARGEST:
            raise PromptError(f"{path}: {size:,} bytes of prompts; at most {_LARGEST:,}")
        held = pq.ParquetFile(path, page_checksum_verification=True)
        columns = [name for name in held.schema_arrow.names if name in keys]
        if not columns:
            found = ", ".join(held.schema_arrow.names[:20])
            raise PromptError(f"{path}: expected one of the columns {', '.join(keys)}, found {found or 'none'}")
        _check_claims(held, path, columns)
        for batch in held.iter_batches(_AT_ONCE, columns=columns):
            yield from batch.to_pylist()
    except (pa.ArrowException, OSError, MemoryError, ValueError, KeyError, IndexError) as error:
        reason = getattr(error, "strerror", None) or (str(error).splitlines() or [type(error).__name__])[0]
        raise PromptError(f"{path}: cannot read the prompts: {reason[:200]}") from None


def _check_claims(held: pq.ParquetFile, path: Path, columns: list[str]) -> None:
    """What its pages say that they hold once they are decompressed."""
    footer, content = held.metadata, path.read_bytes()
    if footer.num_rows > _ROWS:
        raise PromptError(f"{path}: {footer.num_rows:,} prompts; at most {_ROWS:,}")
    claimed = 0
    for group in range(footer.num_row_groups):
        part = footer.row_group(group)
        for place in range(part.num_columns):
            chunk = part.column(place)
            if chunk.path_in_schema.split(".")[0] in columns and chunk.total_compressed_size:
                start = chunk.dictionary_page_offset or chunk.data_page_offset
                claimed += inflated(content, start, start + chunk.total_compressed_size)
    if claimed > _LARGEST:
        raise PromptError(f"{path}: its pages claim {claimed:,} bytes; at most {_LARGEST:,}")
