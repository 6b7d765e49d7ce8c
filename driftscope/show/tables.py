"""The same figures as a table to read: frame -> strings, a row per step (or boundary, head, ...)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from driftscope.probes.record import Layout
from driftscope.show.words import BUCKET_NAMES

_MOST_WIDE, _MOST_NARROW = 5, 9
_NO_AXES = ("run", "mean", "low", "high", "count", "counted", "prompts")
NOT_MEASURED = "–"  # noqa: RUF001


def table_of(frame: pd.DataFrame, layout: Layout, **words: str) -> pd.DataFrame:
    """Tidy rows as a record lays them out; `words` are put into its heads."""
    rows = frame
    for axis, wanted in layout.where.items():
        values = wanted if isinstance(wanted, tuple) else (wanted,)
        rows = rows[rows[axis].isin(values)]
    rows = rows.rename(columns=dict(layout.renamed))
    if layout.columns == "bucket":
        rows = rows.assign(bucket=rows["bucket"].map(BUCKET_NAMES))
    return figures_table(
        rows,
        layout.rows or axes_of(rows, layout.columns),
        layout.columns,
        head=layout.head.format(**words),
        form=layout.form,
        forms=layout.forms,
        intervals=layout.intervals,
        counts=layout.counts,
    )


def axes_of(frame: pd.DataFrame, besides: str | None = None) -> list[str]:
    """The columns of tidy rows that tell figures apart: those that differ, or the first where none does."""
    axes = [str(name) for name in frame if name not in (*_NO_AXES, besides)]
    return [name for name in axes if frame[name].nunique(dropna=False) > 1] or axes[:1]


def figures_table(
    frame: pd.DataFrame,
    rows: Sequence[str],
    columns: str | None = None,
    *,
    head: str = "value",
    form: str = ".3f",
    forms: Mapping[str, str] | None = None,
    intervals: bool = True,
    counts: bool = True,
) -> pd.DataFrame:
    """`1.23 (1.20 to 1.26)` per row of `rows` and column of `columns`; runs beside each other, or below where that is too wide.

    Denominators get a column of their own where one holds for all figures of a row. `head` names the figure where there is no
    `columns`; `forms` are number formats by the value of `columns`. What was not measured is a dash.
    """
    if frame.empty:
        return pd.DataFrame()
    frame = frame.reset_index(drop=True)
    column = frame[columns].astype(str) if columns else pd.Series(head, index=frame.index)
    several = frame["run"].nunique() > 1
    if several and frame["run"].nunique() * column.nunique() > (_MOST_WIDE if intervals else _MOST_NARROW):
        rows, several = ["run", *rows], False
    heads = frame["run"].astype(str) + ": " + column if several else column
    if several and columns is None:
        heads = frame["run"].astype(str)
    shown = [
        interval_text(mean, low, high, (forms or {}).get(name, form), intervals)
        for mean, low, high, name in zip(frame["mean"], frame["low"], frame["high"], column, strict=True)
    ]
    table = _spread(frame, rows, heads, shown)
    if counts and "count" in frame:
        for counted in dict.fromkeys(frame["counted"].dropna()):
            part = frame[frame["counted"] == counted]
            per_run = several and part.groupby(list(rows))["count"].nunique().gt(1).any()
            if part.groupby([*rows, *(["run"] if per_run else [])])["count"].nunique().gt(1).any():
                continue
            names = part["run"].astype(str) + f": {counted}" if per_run else pd.Series(counted, index=part.index)
            numbers = [f"{int(value):,}" for value in part["count"]]
            table = table.join(_spread(part, rows, names, numbers))
    return table.fillna(NOT_MEASURED).reset_index()


def bucket_table(figures: pd.DataFrame, quantity: str, form: str) -> pd.DataFrame:
    """`step_figures` -> a row per step, a column per bucket."""
    return table_of(figures, Layout(("step",), "bucket", form=form, where={"quantity": quantity}))


def ranking_table(ranking: pd.DataFrame) -> pd.DataFrame:
    """`head_ranking` -> a row per head."""
    return pd.DataFrame(
        {
            **({"run": ranking["run"]} if ranking["run"].nunique() > 1 else {}),
            "layer": ranking["layer"],
            "head": ranking["head"],
            "excess": [
                interval_text(*ends, "+.3f")
                for ends in zip(ranking["mean"], ranking["low"], ranking["high"], strict=True)
            ],
            "p (Holm)": [NOT_MEASURED if np.isnan(value) else f"{value:.2g}" for value in ranking["p_value"]],
        }
    )


def one_head_table(frame: pd.DataFrame) -> pd.DataFrame:
    """`head_masses` of one head -> a row per step, masses and then excess by bucket."""
    table, excess = bucket_table(frame, "mass", ".3f"), bucket_table(frame, "excess", "+.3f")
    if excess.empty:
        return table
    beyond = {name: f"{name}, excess" for name in BUCKET_NAMES.values()}
    held = ["step", *(name for name in excess if name in beyond)]
    return table.merge(excess[held].rename(columns=beyond), on="step")


NAMED: dict[str, Callable[[pd.DataFrame], pd.DataFrame]] = {"ranking": ranking_table, "one_head": one_head_table}
"""Tables that no layout makes, by the name that a caption gives."""


def interval_text(mean: float, low: float, high: float, form: str = ".3f", interval: bool = True) -> str:
    """A figure with its 95% interval."""
    if not np.isfinite(mean):
        return NOT_MEASURED
    text = _number(mean, form)
    if not interval or not (np.isfinite(low) and np.isfinite(high)):
        return text
    return f"{text} ({_number(low, form)} to {_number(high, form)})"


def _number(value: float, form: str) -> str:
    text = f"{value:{form}}"
    # Rounding must not print a minus in front of zero.
    return text.replace("-", "+" if form.startswith("+") else "") if not any(c in "123456789" for c in text) else text


def _spread(frame: pd.DataFrame, rows: Sequence[str], heads: pd.Series, shown: Sequence[Any]) -> pd.DataFrame:
    keys = [frame[name] for name in rows]
    index = pd.MultiIndex.from_arrays(keys, names=list(rows))
    table = pd.DataFrame({"head": heads.to_numpy(), "shown": list(shown)}, index=index)
    order, lines = list(dict.fromkeys(table["head"])), list(dict.fromkeys(index))
    wide = table.set_index("head", append=True)["shown"]
    wide = wide[~wide.index.duplicated()].unstack("head")
    return wide.reindex(index=pd.MultiIndex.from_tuples(lines, names=list(rows)), columns=order)
