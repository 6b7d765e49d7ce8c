"""The same figures as a table to read: frame -> strings, a row per step (or boundary, head, ...)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from driftscope.show.charts.theme import BUCKET_NAMES

_MOST_WIDE, _MOST_NARROW = 5, 9
NOT_MEASURED = "–"  # noqa: RUF001


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


def step_table(
    figures: pd.DataFrame, quantities: Sequence[str], forms: Mapping[str, str] | None = None
) -> pd.DataFrame:
    """`step_figures` -> a row per step, a column per quantity."""
    names = {name: name.replace("_", " ") for name in quantities}
    rows = figures[figures["quantity"].isin(quantities)]
    rows = rows.assign(quantity=rows["quantity"].map(names))
    return figures_table(rows, ["step"], "quantity", forms={names[name]: form for name, form in (forms or {}).items()})


def bucket_table(figures: pd.DataFrame, quantity: str, form: str) -> pd.DataFrame:
    """`step_figures` -> a row per step, a column per bucket."""
    return figures_table(with_bucket_names(figures[figures["quantity"] == quantity]), ["step"], "bucket", form=form)


def with_bucket_names(rows: pd.DataFrame) -> pd.DataFrame:
    """Buckets by the names that screens show."""
    return rows.assign(bucket=rows["bucket"].map(BUCKET_NAMES))


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
