"""Declared tables: the names, types and limits of their columns, and frames that conform to them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from driftscope.errors import RunError

STRING = pa.dictionary(pa.int32(), pa.string())
BOOL, INT16, INT32, INT64 = pa.bool_(), pa.int16(), pa.int32(), pa.int64()
FLOAT, SUM = pa.float32(), pa.float64()


@dataclass(frozen=True)
class Column:
    """One column, or with a placeholder such as `rms/{site}` a family of optional ones."""

    name: str
    type: pa.DataType
    about: str = ""
    nullable: bool = False
    values: tuple[str, ...] | None = None
    """The strings that may occur; of a family, what may stand for the placeholder."""
    least: int | None = None
    """The smallest number that may occur."""
    whole: bool = False
    """A run has it in every row or in none: on reading it is plain where it is there, and NaN where it is not."""

    @property
    def family(self) -> str | None:
        """`rms/` for `rms/{site}`, None for a plain column."""
        head, brace, _ = self.name.partition("{")
        return head if brace else None

    def below_least(self, stored: pa.Array | pa.ChunkedArray) -> int | None:
        """The smallest of these numbers, where it may not occur."""
        low: int | None = None if self.least is None else pc.min(stored).as_py()
        return low if low is not None and self.least is not None and low < self.least else None

    def holds(self, name: str) -> bool:
        """Whether a column called `name` is declared by this one."""
        if self.family is None:
            return name == self.name
        member = name.removeprefix(self.family)
        return name.startswith(self.family) and bool(member) and (self.values is None or member in self.values)


@dataclass(frozen=True)
class Table:
    """A declared table."""

    name: str
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()
    """Columns that identify a row which several shards may repeat; the first is kept on reading."""

    def column(self, name: str) -> Column | None:
        """The declaration of `name`, or None."""
        if name not in self._known:
            self._known[name] = next((column for column in self.columns if column.holds(name)), None)
        return self._known[name]

    @cached_property
    def _known(self) -> dict[str, Column | None]:
        """By name: thousands of files are asked for the same columns."""
        return {}

    def conform(self, frame: pd.DataFrame) -> pa.Table:
        """`frame` with the declared types, declared columns first, the rest in the frame's order.

        Raises RunError for a missing or undeclared column, a value of another type, or a null where none may be.
        """
        fixed = [column for column in self.columns if column.family is None]
        missing = [c.name for c in fixed if (c.whole or not c.nullable) and c.name not in frame]
        if missing:
            raise RunError(f"table {self.name}: column {', '.join(missing)} is missing; see driftscope.runs.schema")
        unknown = [str(name) for name in frame if self.column(str(name)) is None]
        if unknown:
            declared = ", ".join(c.name for c in self.columns)
            raise RunError(f"table {self.name}: undeclared column {', '.join(unknown)}; declared are {declared}")
        names = [c.name for c in fixed]
        names += [str(name) for name in frame if str(name) not in names]
        arrays = {name: self._array(name, frame) for name in names}
        return pa.table(arrays)

    def frame(self, table: pa.Table) -> pd.DataFrame:
        """The stored rows as pandas: nullable integers are `Int32`/`Int64`, strings are categoricals.

        Raises RunError for a null or a number where no probe stores one.
        """
        self._check(table)
        frame = table.to_pandas(ignore_metadata=True, use_threads=False, split_blocks=True)
        for name in frame:
            column = self.column(str(name))
            if column is None or not column.nullable:
                continue
            if column.whole:
                if frame[name].dtype == object:
                    frame[name] = frame[name].astype("float64")
            elif pa.types.is_integer(column.type):
                frame[name] = frame[name].astype(f"Int{column.type.bit_width}")
        if self.key:
            frame = frame.drop_duplicates(list(self.key), ignore_index=True)
        return frame

    def _check(self, table: pa.Table) -> None:
        for name in table.column_names:
            column = self.column(name)
            if column is None or column.nullable:
                continue
            stored = table[name]
            low = column.below_least(stored)
            if stored.null_count or low is not None:
                what = "nulls" if stored.null_count else low
                raise RunError(
                    f"table {self.name} holds {what} in {name}, which no probe stores: changed or damaged; measure again"
                )

    def empty(self) -> pa.Table:
        """No rows, every plain column."""
        return pa.schema([(c.name, c.type) for c in self.columns if c.family is None]).empty_table()

    def _array(self, name: str, frame: pd.DataFrame) -> pa.Array:
        column = self.column(name)
        assert column is not None
        if name not in frame:
            return pa.nulls(len(frame), column.type)
        try:
            array = pa.array(frame[name], from_pandas=True)
            array = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
            array = array.cast(pa.string()).dictionary_encode() if column.type == STRING else array.cast(column.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
            reason = str(error).splitlines()[0]
            raise RunError(f"table {self.name}, column {name}: expected {column.type}: {reason}") from error
        if array.null_count and not column.nullable:
            raise RunError(f"table {self.name}, column {name}: {array.null_count} of {len(array)} values are null")
        if (low := column.below_least(array)) is not None:
            raise RunError(f"table {self.name}, column {name}: {low} is less than {column.least}")
        if column.values is not None and column.family is None:
            other = sorted(set(array.dictionary.to_pylist()) - set(column.values))
            if other:
                known = ", ".join(column.values)
                raise RunError(f"table {self.name}, column {name}: {other[0]!r} is not one of {known}")
        return array


def optional(name: str, kind: pa.DataType, about: str = "", values: tuple[str, ...] | None = None) -> Column:
    """A column whose nulls mean "not measured"; with a placeholder, a family of such columns."""
    return Column(name, kind, about, nullable=True, values=values)


FEEDS = ("drafted", "text")
VARIANT = Column("variant", STRING, "condition under which the chains ran")
FEED = Column("feed", STRING, "what a step embeds: its own drafted token, or the text's", values=FEEDS)
PROMPT = Column("prompt", STRING, "prompt id")
STEP = Column("step", INT16, least=1)
"""Columns that most tables have."""
