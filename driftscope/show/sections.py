"""The probes beyond the clean chains on a terminal: a table of each one's figures, and what they say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd
from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from driftscope.probes import known
from driftscope.probes.held import record_of, rows_of
from driftscope.probes.record import Caption, Figures, Layout, Record, heading_of
from driftscope.show.tables import table_of

_MOST = 40
"""Lines of a table; the rest is in --json."""


def probe_sections(summary: Mapping[str, Any]) -> Iterator[Group]:
    """A section for every probe of a summary that the tables above do not show."""
    probes = known()
    for name, figures in summary.get("probes", {}).items():
        probe = probes.get(name)
        record = record_of(probe)
        if record.printed:
            yield _section(heading_of(name, getattr(probe, "question", ""), record), record, figures)


def _section(heading: str, record: Record, figures: Figures) -> Group:
    parts: list[Any] = [Text(f"\n{heading}", "bold")]
    table = probe_table(record, figures)
    if len(table):
        parts.append(_drawn(table.iloc[:_MOST]))
    else:
        plain = [f"{name} {value}" for name, value in figures.items() if isinstance(value, int | float | str)]
        parts.append(Text(f"  {'; '.join(plain) or 'no figures'}"))
    if len(table) > _MOST:
        parts.append(Text(f"  {len(table) - _MOST} more lines: --json", "dim"))
    for condition, text in record.sentences(figures) if record.sentences else ():
        parts.append(Text(f"  {condition}: {text}" if condition else f"  {text}"))
    return Group(*parts)


def probe_table(record: Record, figures: Figures) -> pd.DataFrame:
    """The tidy rows of one run's figures as the record lays them out."""
    rows = rows_of(record, figures)
    if not rows:
        return pd.DataFrame()
    frame = pd.DataFrame(rows)
    frame[["mean", "low", "high"]] = frame[["mean", "low", "high"]].astype("float64")
    return table_of(frame.assign(run=""), record.table or _first_layout(record.pictures))


def _first_layout(pictures: tuple[Caption, ...]) -> Layout:
    layout = pictures[0].table if pictures else Layout()
    return layout if isinstance(layout, Layout) else Layout()


def _drawn(table: pd.DataFrame) -> Table:
    drawn = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False, header_style="bold")
    for name in table:
        drawn.add_column(str(name).replace("_", " "), no_wrap=False)
    for row in table.itertuples(index=False):
        drawn.add_row(*(str(cell) for cell in row))
    return drawn
