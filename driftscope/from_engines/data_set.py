"""The Arrow data set that speculators keeps beside `hidden_states/hs_{row}.safetensors`, with the loss masks of its rows.

Opened as a file that anyone may have written: a compressed batch can inflate to any amount of memory and is not read, and
what its buffers claim is checked before a value is looked at. Layout of a message: Arrow's Message.fbs, as FlatBuffers.
"""

from __future__ import annotations

import struct
from pathlib import Path

import pyarrow as pa
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from driftscope.errors import DriftscopeError
from driftscope.files.json import check_regular

COLUMNS = ("input_ids", "loss_mask")
_HEADER, _COMPRESSION = 2, 3
"""Fields of a Message and of a RecordBatch."""


class DataSet:
    """Loss masks by row. Files are opened when the first is asked for."""

    def __init__(self, folder: Path) -> None:
        base = folder if folder.is_dir() else folder.parent
        places = (base, base.parent)
        self.files = next((found for place in places if (found := sorted(place.glob("*.arrow")))), [])
        self._parts: list[pa.Table] | None = None

    def mask(self, file: Path, token_ids: Int[Tensor, " T"]) -> Bool[Tensor, " T"] | None:
        """Of the row that the file is named after; None where there is no data set, or no row in the name.

        Raises DriftscopeError where the row is missing, of another text, or damaged.
        """
        number = file.stem.removeprefix("hs_")
        if not self.files or not (number.isascii() and number.isdigit()):
            return None
        row = int(number)
        if self._parts is None:
            self._parts = [_opened(path) for path in self.files]
        for path, part in zip(self.files, self._parts, strict=True):
            if row < len(part):
                known, mask = (_whole_numbers(path, part, name, row) for name in COLUMNS)
                if not torch.equal(known, token_ids):
                    raise DriftscopeError(f"{file}: other tokens than row {number} of the data set in {path.parent}")
                if len(mask) != len(known):
                    raise DriftscopeError(f"{path}: row {row} has {len(known)} tokens, but a loss mask of {len(mask)}")
                return mask > 0
            row -= len(part)
        raise DriftscopeError(f"{file}: the data set in {self.files[0].parent} has no row {number}")


def _opened(file: Path) -> pa.Table:
    """Its two columns, in the file until they are read."""
    try:
        check_regular(file, DriftscopeError)
        with pa.memory_map(str(file)) as source:
            stream = pa.ipc.MessageReader.open_stream(source)
            schema = pa.ipc.read_schema(stream.read_next_message())
            batches = []
            for message in stream:
                if message.type != "record batch" or _is_compressed(message.metadata.to_pybytes()):
                    raise ValueError("compressed, or with dictionaries: write it as the datasets library does")
                batches.append(pa.ipc.read_record_batch(message, schema))
        table = pa.Table.from_batches(batches, schema).select(list(COLUMNS))
        table.validate(full=True)
    except (
        pa.ArrowException,
        OSError,
        KeyError,
        ValueError,
        IndexError,
        MemoryError,
        StopIteration,
        struct.error,
    ) as error:
        reason = (str(error).splitlines() or ["it is empty"])[0]
        raise DriftscopeError(f"{file}: not a data set with {' and '.join(COLUMNS)} ({reason[:200]})") from error
    return table


def _whole_numbers(file: Path, table: pa.Table, name: str, row: int) -> Int[Tensor, " T"]:
    column = table.column(name)
    kind = column.type
    lists = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    if not lists or not (pa.types.is_integer(kind.value_type) or pa.types.is_boolean(kind.value_type)):
        raise DriftscopeError(f"{file}: {name} is {str(kind)[:80]}, expected lists of whole numbers")
    values = column[row].values
    try:
        if values is None or values.null_count:
            raise ValueError("null")
        return torch.tensor(values.cast(pa.int64()).to_numpy())
    except (pa.ArrowException, ValueError) as error:
        raise DriftscopeError(f"{file}: {name} of row {row} holds what is no whole number ({error})") from error


def _is_compressed(metadata: bytes) -> bool:
    """Whether the header of a record batch names a compression."""
    message = struct.unpack_from("<I", metadata)[0]
    place = _field(metadata, message, _HEADER)
    if place is None:
        raise ValueError("a message without a header")
    return _field(metadata, place + struct.unpack_from("<I", metadata, place)[0], _COMPRESSION) is not None


def _field(buffer: bytes, table: int, number: int) -> int | None:
    """Where a field of a FlatBuffers table is; None where it is left out."""
    fields = table - struct.unpack_from("<i", buffer, table)[0]
    if fields < 0:
        raise ValueError("a header that points outside of itself")
    size = struct.unpack_from("<H", buffer, fields)[0]
    at = 4 + 2 * number
    offset = struct.unpack_from("<H", buffer, fields + at)[0] if at < size else 0
    return table + offset if offset else None
