"""The record of a probe: everything that others need to know of it, declared beside the measurement, in its one file.

A probe carries its record as the attribute `record`. From it follow, with no other file touched: the tables that a run may hold,
the figures in `Run.summary()["probes"]` and `--json` with their JSON Schema, the section of `driftscope show`, the pictures of
report, notebook and app, the page of the app, and a run without a model for tests (`driftscope.probes.fakes`).

    class Confidence:
        name = shard = "confidence"
        question = "Is the drafter surer of its tokens than their acceptance warrants?"
        record = Record(figures=figures, about={"steps": "per step: the highest probability, the share that is right"})

Every part has a default. Without `figures` they are the means per step of what the probe put into the table `steps`; without `rows`
every figure is one; without pictures the rows are drawn by step, or as bars. A figure is `{"mean": .., "low": .., "high": ..}` (the
`to_dict` of `driftscope.stats` intervals over prompts); what was not measured is absent.

Nothing here imports what it describes: charts are named, and the functions of a record import what they need when called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import pandas as pd

    from driftscope.runs.columns import Table
    from driftscope.runs.folder import RunFolder

INTERVALS = "bands and bars are 95% intervals over prompts"
GENERIC_PAGE = "probes"
"""The app's page of every probe that names none."""

Figures = Mapping[str, Any]
Rows = Iterable[Mapping[str, Any]]


class MakeFigures(Protocol):
    def __call__(self, run: RunFolder, depth: int | None, /) -> Figures:
        """The probe's figures, ready for JSON; {} without any. `depth`: that of `Run.summary`, for probes that it says anything
        to."""


@dataclass(frozen=True)
class Layout:
    """How tidy rows become a table to read: `1.23 (1.20 to 1.26)` per row of `rows` and value of `columns`."""

    rows: tuple[str, ...] = ()
    """Axes whose values label a row; none: every axis but `columns`."""
    columns: str | None = "quantity"
    """The axis beside it; None: one column of figures, headed `head`."""
    head: str = "value"
    form: str = ".3f"
    forms: Mapping[str, str] = field(default_factory=dict)
    """Number formats by the value of `columns`."""
    where: Mapping[str, Any] = field(default_factory=dict)
    """Only rows with this value of an axis, or one of a tuple of them."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Axes under other names."""
    intervals: bool = True
    counts: bool = True
    """Denominators, in columns of their own."""


@dataclass(frozen=True)
class Caption:
    """One picture: which chart, and the words around it."""

    name: str
    """Unique, also a file name."""
    title: str
    about: str
    """What is shown, in which unit. `{unit}` is the norm's that was asked for."""
    chart: str | Callable[[pd.DataFrame], Any] = "figures"
    """The name of a chart of `driftscope.show.charts`, or a function from the record's tidy rows, with the column `run`, to an
    Altair chart. `figures` draws any rows."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Of the chart."""
    table: Layout | str = field(default_factory=Layout)
    """Of the same figures; or the name of a table of `driftscope.show.tables`."""
    asked: bool = False
    """Only where it is asked for by name, not in the report."""


@dataclass(frozen=True)
class Record:
    """What a probe stores, and how it is told. Functions take and return plain data, so that they can be tested alone."""

    tables: tuple[Table, ...] = ()
    """Tables that only this probe stores, beside those of `driftscope.runs.schema`."""
    figures: MakeFigures | None = None
    about: Mapping[str, str] = field(default_factory=dict)
    """What each entry of the figures is: the descriptions of the JSON Schema, and all keys that there may be. Empty: any."""
    at_top: bool = False
    """The figures stand at the top of the summary, where the shipped schema describes them, and not under `probes`."""
    rows: Callable[[Figures], Rows] | None = None
    """Figures -> tidy rows: the axes, `mean`, `low`, `high`, and where known `count` with `counted`."""
    axes: tuple[str, ...] = ("quantity",)
    """The axes of those rows."""
    table: Layout | None = None
    """The table of `driftscope show`; None: that of the first picture."""
    sentences: Callable[[Figures], Sequence[tuple[str, str]]] | None = None
    """Figures -> (condition or "", what is to be said of it)."""
    pictures: tuple[Caption, ...] = ()
    heading: str = ""
    """Of its section; empty: made of name and question."""
    printed: bool = True
    """Whether `driftscope show` prints table and sentences; False where the verdict's own tables show the figures."""
    page: str = GENERIC_PAGE
    """The app's page."""
    fake: Callable[[str, int], Mapping[str, pd.DataFrame]] | None = None
    """(prompt id, its number) -> tables as `measure` makes them, without a model."""


def heading_of(name: str, question: str, record: Record) -> str:
    """The heading of a probe's section: `Noise: how much acceptance is left ...?`"""
    if record.heading or not question:
        return record.heading or name.capitalize()
    return f"{name.capitalize()}: {question[:1].lower()}{question[1:]}"
