"""One table of a run in memory: columns are read when they are asked for, once."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

import pandas as pd
import pyarrow as pa

from driftscope.runs.columns import Table
from driftscope.runs.parquet import chosen_of, read_columns


class HeldTable:
    """The rows of the files of one table. Other files than before: everything is read again."""

    def __init__(self, declared: Table) -> None:
        self._declared = declared
        self._files: tuple[Path, ...] | None = None
        self._names: list[str] = []
        self._held: dict[str, pd.Series] = {}

    def frame(self, files: Sequence[Path], columns: Collection[str] | None = None) -> pd.DataFrame:
        """The rows of `files` below each other, with all columns or those of `columns` that exist (`rms/` is a family).

        Raises RunError naming a file that cannot be read.
        """
        if self._files != tuple(files):
            self._files, self._names, self._held = tuple(files), [], {}
        # Which rows repeat can be told from the whole row only.
        if columns is None or self._declared.key:
            if len(self._held) < max(len(self._names), 1):
                self._read(None)
            return self._of(self._names)
        missing = [name for name in chosen_of(self._names, columns) if name not in self._held]
        if missing or not self._names:
            # Which columns there are is seen on the way.
            self._read(missing or columns)
        return self._of(chosen_of(self._names, columns))

    def _read(self, columns: Collection[str] | None) -> None:
        """Columns of every file, or all of them; what is held already is not held twice."""
        found = [read_columns(file, self._declared, columns) for file in self._files or ()]
        self._names = self._names or self._all([stored for stored, _ in found])
        names = self._names if columns is None else chosen_of(self._names, columns)
        empty = self._declared.empty()
        known = empty.select([name for name in names if name in empty.column_names])
        whole = pa.concat_tables([known, *(part for _, part in found)], promote_options="default").unify_dictionaries()
        frame = self._declared.frame(whole.select(names))
        self._held = {**{name: frame[name] for name in names}, **self._held}

    def _all(self, stored: Sequence[Sequence[str]]) -> list[str]:
        """Declared columns, then those of families in the order in which the files have them."""
        return list(dict.fromkeys([*self._declared.empty().column_names, *(name for part in stored for name in part)]))

    def _of(self, names: Sequence[str]) -> pd.DataFrame:
        return pd.DataFrame({name: self._held[name] for name in names}, copy=False)
