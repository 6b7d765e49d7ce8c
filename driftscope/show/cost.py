"""What drift costs and where chains end, on a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from driftscope.chain.patches import REASONS
from driftscope.findings.verdict import bounds, figure

LENGTHS = {
    "actual": "accepted as it drafts",
    "undrifted": "undrifted: all of it real",
    "cost": "cost of drift",
}
FACTORS = {
    "state": "by the carried state",
    "state_direction": "  its direction",
    "state_rms": "  its size (RMS)",
    "pattern": "by where attention goes",
    "values": "by its own rows' values",
}
WHY = {
    "vocabulary": "not in the draft vocabulary",
    "target_undecided": "the target itself is undecided",
    "drafter": "wrong without drift too",
    "state": "drift, mended by the state",
    "pattern": "drift, mended by the attention",
    "values": "drift, mended by the values",
    "several": "drift, several",
    "block": "drafting in one block",
}


def cost_section(summary: Mapping[str, Any]) -> Group | None:
    """Tables of the cost and of the reasons; None where the probe `cost` was not run."""
    cost = summary.get("drift_cost")
    if not cost:
        return None
    parts = [_cost(cost)]
    ends = summary.get("rejections")
    if ends and ends["rejected"]:
        parts.append(_reasons(ends, cost["depth"]))
    return Group(*parts)


def _cost(cost: Mapping[str, Any]) -> Group:
    title = f"\nWhat drift costs, in accepted tokens of {cost['depth']} drafted ({cost['anchors']:,} anchors)"
    table = _table(["", "tokens", "95%", "alone", "last"])
    for name, label in LENGTHS.items():
        share = figure(cost, "share") if name == "cost" else None
        told = f"{label}, {share:.0%} of that" if share is not None else label
        table.add_row(told, *_figure(cost, name, sign=name == "cost"))
    for name, label in FACTORS.items():
        if name in cost:
            ways = (_number(figure(cost, name, way), sign=True) for way in ("alone", "last"))
            table.add_row(Text(f"  {label}"), *_figure(cost, name, "shapley", sign=True), *ways)
    note = "alone: only this part real; last: this part too, the others being real; tokens: the mean over all orders (Shapley)"
    return Group(Text(title, "bold"), table, *([Text(note, "dim")] if "state" in cost else []))


def _reasons(ends: Mapping[str, Any], depth: int) -> Group:
    title = f"\nWhere chains end: {ends['rejected']:,} of {ends['anchors']:,} anchors are rejected within {depth} steps"
    table = _table(["", "share", "95%", "tokens lost"])
    for name in REASONS:
        share, ends_of = figure(ends, name), bounds(ends, name)
        if share is None:
            continue
        interval = f"{ends_of[0]:.0%} to {ends_of[1]:.0%}" if ends_of else ""
        table.add_row(WHY[name], f"{share:.0%}", Text(interval, "dim"), _number(figure(ends, "lost", name)))
    gained = figure(ends, "gained")
    note = f"{gained:.2f} tokens per anchor are right although the row without drift is wrong" if gained else ""
    return Group(Text(title, "bold"), table, *([Text(note, "dim")] if note else []))


def _table(columns: Sequence[str]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False, header_style="bold")
    for name in columns:
        table.add_column(name, justify="right" if name else "left", no_wrap=bool(name))
    return table


def _figure(figures: Mapping[str, Any], *path: str, sign: bool = False) -> tuple[Text, Text]:
    ends = bounds(figures, *path)
    interval = f"{_number(ends[0], sign)} to {_number(ends[1], sign)}" if ends else ""
    return Text(_number(figure(figures, *path), sign), "bold"), Text(interval, "dim")


def _number(value: float | None, sign: bool = False) -> str:
    if value is None:
        return "-"
    text = f"{value:+.3f}" if sign else f"{value:.3f}"
    return "0.000" if text in ("+0.000", "-0.000") else text
