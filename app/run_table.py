"""All runs in a table: how bad each is, what drift costs, how far things move, what is served."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import streamlit as st

from driftscope.app import links, swatches
from driftscope.app.digest import Digest
from driftscope.app.library import Entry
from driftscope.app.loading import digest_of
from driftscope.app.severity import severity
from driftscope.app.shell import entry_target, measured, messages, plain
from driftscope.findings.verdict import ONSETS
from driftscope.findings.words import spread_text
from driftscope.show.tables import NOT_MEASURED

_SECONDS = 0.3
"""How long one pass may work on lines that the table lacks."""
_LINES, _LINE = 8, 36
"""Lines that are seen without scrolling, and pixels of one."""
_LOOKED_AT = "looked-at"
"""Session state: the runs whose figures this session has seen."""
_PENDING = "…"


def show(known: Sequence[Entry]) -> None:
    """Every run; lines that are not known yet fill in while one looks, from the second pass on."""
    pending = any(digest_of(entry, wait=False) is None for entry in known)
    seen: set[str] = st.session_state.setdefault(_LOOKED_AT, set())
    shown = links.chosen("run", [entry.id for entry in known])
    until: list[float] = [] if shown in seen else [0.0]
    seen.add(shown)
    st.fragment(_guarded, run_every="1s" if pending else None)(list(known), pending, iter(until))


def _guarded(known: Sequence[Entry], pending: bool, until: Iterator[float]) -> None:
    with messages("table of runs"):
        _lines(known, pending, next(until, time.monotonic() + _SECONDS))


def in_sight(known: Sequence[Entry], shown: str) -> list[Entry]:
    """The runs in their order; where the one that is shown would be out of sight, it comes first."""
    place = next((number for number, entry in enumerate(known) if entry.id == shown), 0)
    return list(known) if place < _LINES else [known[place], *known[:place], *known[place + 1 :]]


def _lines(known: Sequence[Entry], pending: bool, until: float) -> None:
    shown = links.chosen("run", [entry.id for entry in known])
    ordered = in_sight(known, shown)
    found = [digest_of(entry, wait=time.monotonic() < until or entry.id == shown) for entry in ordered]
    if pending and all(part is not None for part in found):
        st.rerun()
    rows = [line(entry, part) for entry, part in zip(ordered, found, strict=True)]
    colours = [severity(part).colour if part else "" for part in found]
    frame = pd.DataFrame(rows)
    chosen = [place for place, entry in enumerate(ordered) if entry.id == shown]
    styled = frame.style.apply(
        lambda _: [f"color: {colour}" if colour else "" for colour in colours], subset=["verdict"]
    )
    event: Any = st.dataframe(
        styled,
        hide_index=True,
        height=_LINE * (min(len(frame), _LINES) + 1) + 2,
        on_select="rerun",
        selection_mode="single-row",
        selection_default={"selection": {"rows": chosen}},
        key=f"runs-{shown}-{chosen}",
        placeholder=NOT_MEASURED,
        column_config=_columns(frame, any("problem" in (part or {}) or (part or {}).get("left_out") for part in found)),
    )
    picked = event["selection"]["rows"]
    if picked and picked != chosen:
        links.put("run", ordered[picked[0]].id)
        st.rerun()


def line(entry: Entry, found: Digest | None) -> dict[str, Any]:
    """One run as a row."""
    info = entry.info
    switches = info.checkpoint.switches if info else {}
    told = found or {}
    cost = told.get("cost") or {}
    problem = told.get("problem")
    return {
        " ": swatches.image(entry),
        "run": entry.id,
        "verdict": _PENDING
        if found is None
        else plain(RuntimeError(problem)).replace("\\", "")
        if problem
        else f"{_damaged(told)}{severity(told).words}",
        "cost": _mean(cost.get("cost")),
        "growth": _mean(told.get("growth")),
        "displaced": _mean(told.get("displacement")),
        "served": _mean(told.get("served")),
        "carry": str(switches.get("carry", "")),
        "FC-norm": {True: "yes", False: "no"}.get(switches.get("fc_norm", ""), ""),
        "prompts": f"{measured(entry)} of {len(info.prompts)}" if info else "",
        "onsets": _starts(told.get("onset", {}), told.get("onset_spread", {})),
        "findings": ", ".join(told.get("codes", ())),
        "target": entry_target(entry),
    }


def _damaged(told: Digest) -> str:
    """What stands before the verdict of a run of which shards are left out."""
    why = told.get("left_out", ())
    return (
        f"{len(why)} damaged, left out ({Path(why[0].split(': ')[0].removeprefix('cannot read ')).name}); "
        if why
        else ""
    )


def _columns(frame: pd.DataFrame, broken: bool) -> dict[str, Any]:
    """What a narrow screen shows comes first; bars reach from nothing to the largest of the table."""

    def bar(name: str, form: str, about: str) -> Any:
        most = pd.to_numeric(frame[name]).max()
        top = float(most) if pd.notna(most) and most > 0 else 1.0
        return st.column_config.ProgressColumn(format=form, min_value=0.0, max_value=top, width=92, help=about)

    names = ", ".join(ONSETS.values())
    return {
        " ": st.column_config.ImageColumn(width=28, help="colour and shape of the run in every chart"),
        "run": st.column_config.TextColumn(width=105),
        # What is wrong with a run is long; it is whole when the cell is clicked.
        "verdict": st.column_config.TextColumn(width=235 if broken else 190),
        "cost": bar("cost", "%.2f", "accepted tokens per anchor that drift costs"),
        "growth": bar("growth", "%.2fx", "RMS of the carried state at the last step over step 1"),
        "displaced": bar(
            "displaced", "%.2f", "share of a head's attention that moved at the last step, mean over heads"
        ),
        "served": bar("served", "%.2f", "accepted drafted tokens a round, as an engine serves"),
        "carry": st.column_config.TextColumn(width=52),
        "FC-norm": st.column_config.TextColumn(width=64),
        "prompts": st.column_config.TextColumn(width=72),
        "onsets": st.column_config.TextColumn(
            help=f"{names}: the step from which on, and in brackets its spread over resampled prompts"
        ),
    }


def _mean(figure: dict[str, Any] | None) -> float | None:
    value = (figure or {}).get("mean")
    return None if value is None else float(value)


def _starts(onset: dict[str, Any], spread: dict[str, dict[str, Any]]) -> str:
    """The onsets that are a step, with their spread; where there is none, why."""
    found = []
    for key, name in ONSETS.items():
        start = onset.get(key)
        if isinstance(start, int):
            ends = spread.get(key, {})
            found.append(f"{name} {start}{spread_text(ends.get('low'), ends.get('high'), start)}")
    return ", ".join(found or sorted({str(start) for start in onset.values()}))
