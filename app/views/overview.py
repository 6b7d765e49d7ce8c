"""Where drift starts: the verdict, the one picture, findings; and all runs in a table."""

from __future__ import annotations

import html
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd
import streamlit as st

from driftscope.app import figures, links, look
from driftscope.app.cards import card, escaped
from driftscope.app.library import Entry
from driftscope.app.loading import computed, digest_of, open_run
from driftscope.app.marks import onsets_of
from driftscope.app.shell import current, entries, measured, messages, plain
from driftscope.findings import Finding
from driftscope.findings.verdict import ONSETS, Reading, Verdict, bounds, figure
from driftscope.findings.words import spread_text
from driftscope.runs.naming import short_name
from driftscope.show.report.content import RunPart, evidence_text
from driftscope.show.tables import NOT_MEASURED, interval_text

# How long one pass may work on lines that the table lacks.
_SECONDS = 0.3
_LOOKED_AT = "looked-at"
"""Session state: the runs whose figures this session has seen."""
_COLOURS = {"drift": "#D55E00", "none": "#009E73", "unknown": "#8a929c"}
_FIGURES = (
    ("carry growth", ("growth",), "x", ".2f", "RMS of the carried state over its own step 1, geometric mean"),
    ("matched growth", ("matched_growth",), "x", ".2f", "over the same position without drafting: 1 is no drift"),
    ("sink mass", ("mass", "sink"), "", ".3f", "share of attention on the target's sink positions"),
    (
        "self-generated excess",
        ("excess", "self_generated"),
        "",
        "+.3f",
        "attention on the drafter's own rows beyond no drafting",
    ),
    ("displacement", ("displacement",), "", ".3f", "share of a head's attention that moved, mean over heads"),
)
_CONDITIONAL = "share accepted among the chains whose earlier steps were all accepted"


def page() -> None:
    """The page."""
    known = entries()
    # The lines of other runs can wait for the run that is looked at.
    table = st.container()
    try:
        _run()
    finally:
        if len(known) > 1:
            with table:
                _table(known)


def _run() -> None:
    """What is said and drawn of the chosen run."""
    entry = current()
    part: RunPart = computed(figures.parts, [entry])[0]
    st.title(entry.id, anchor=False)
    _verdict(part.verdict)
    _onsets(part)
    marks = onsets_of([entry])
    drawn = [*computed(figures.probe, [entry], "cost", marks), *computed(figures.overview, [entry], marks)]
    left, right = st.columns([5, 2], gap="medium")
    with left:
        for item in drawn:
            card(item)
    with right:
        _step(entry, part)
    _findings(part)
    with st.expander("How it was measured"):
        look.facts(part.facts)
        for note in part.notes:
            st.markdown(f"- {escaped(note)}")


def _verdict(verdict: Verdict) -> None:
    text = f'<div style="font-size:1.15rem;font-weight:600">{html.escape(verdict.headline)}</div>'
    cause = f'<div style="padding-top:.3rem">{html.escape(verdict.cause)}</div>' if verdict.cause else ""
    look.callout(text + cause, _COLOURS[verdict.kind])


def _onsets(part: RunPart) -> None:
    """The four onsets and the length that an engine would see."""
    tiles = [(reading.name, _onset(reading), escaped(reading.sentence)) for reading in part.verdict.readings]
    tiles += [
        (f"{name} length", text.split(" ")[0], f"{text} tokens. {meaning}") for name, text, meaning in part.lengths[:1]
    ]
    if not tiles:
        return
    for column, (label, value, about) in zip(st.columns(len(tiles)), tiles, strict=True):
        column.metric(label, value, help=about, border=True)


def _onset(reading: Reading) -> str:
    return NOT_MEASURED if reading.onset is None else reading.start


def _findings(part: RunPart) -> None:
    wrong = part.assessment.wrong
    notes = [finding for finding in part.assessment.findings if finding.kind == "note"]
    st.header("Findings" if wrong else "No finding", anchor=False)
    if not wrong:
        judged = part.assessment.judged
        st.caption(
            "Nothing that was measured is beyond its threshold."
            if judged
            else f"Not judged: {escaped(part.assessment.withheld)}."
            if part.assessment.withheld
            else "Too little was measured to say."
        )
    with st.container(key=f"{look.GRID}-findings"):
        for finding in (*wrong, *notes):
            _finding(finding)
    if part.assessment.unmeasured:
        with st.expander(f"{len(part.assessment.unmeasured)} rules could not be asked"):
            for entry in part.assessment.unmeasured:
                st.markdown(f"- **{entry.code}** {escaped(entry.reason)}")


def _finding(finding: Finding) -> None:
    with st.container(border=True, key=f"card-{finding.code}"):
        colour = {"drift": "orange", "checkpoint": "red", "note": "gray", "engine": "violet"}[finding.kind]
        since = f", from step {finding.step}" if finding.step else ""
        st.markdown(
            f":{colour}-badge[{finding.code}] **{escaped(finding.title)}**{since}  \n{escaped(finding.statement)}"
        )
        if finding.advice or finding.evidence:
            with st.popover("Evidence and what to try", type="tertiary"):
                for line in finding.evidence:
                    st.markdown(f"- {escaped(evidence_text(line))}")
                for advice in finding.advice:
                    st.markdown(f"- *try:* {escaped(advice)}")


def _step(entry: Entry, part: RunPart) -> None:
    """The figures of one step, in numbers."""
    steps = open_run(entry).summary()["steps"]
    if not steps:
        return
    names = [str(step["step"]) for step in steps]
    first = [str(reading.onset) for reading in part.verdict.readings if reading.found]
    default = min(first, key=int) if first else names[-1]
    with st.container(border=True, key="step-figures"):
        name = links.choice(st.segmented_control, "Figures at step", "step", names, default)
        step = steps[int(name) - 1]
        for label, path, unit, form, about in _FIGURES:
            value = _figure(step, path, unit, form)
            st.metric(label, value, help=f"{about}; over {step['acceptance']['anchors']:,} anchors")
            st.caption(_interval(step, path, form) or "without an interval")
        reached = step["acceptance"].get("conditional_denominator", 0)
        path = ("acceptance", "conditional")
        st.metric("conditional acceptance", _figure(step, path, "", ".3f"), help=_CONDITIONAL)
        st.caption(f"{_interval(step, path, '.3f')} of {reached:,} chains that reached the step".strip())


def _figure(step: dict[str, Any], path: Sequence[str], unit: str, form: str) -> str:
    value = figure(step, *path)
    return NOT_MEASURED if value is None else f"{interval_text(value, value, value, form, False)}{unit}"


def _interval(step: dict[str, Any], path: Sequence[str], form: str) -> str:
    ends = bounds(step, *path)
    return "" if ends is None else f"95% {ends[0]:{form}} to {ends[1]:{form}}"


def _table(known: Sequence[Entry]) -> None:
    """Every run with its verdict; lines that are not known yet fill in while one looks, from the second pass on."""
    pending = any(digest_of(entry, wait=False) is None for entry in known)
    seen: set[str] = st.session_state.setdefault(_LOOKED_AT, set())
    shown = links.chosen("run", [entry.id for entry in known])
    until: list[float] = [] if shown in seen else [0.0]
    seen.add(shown)
    st.fragment(_guarded, run_every="1s" if pending else None)(list(known), pending, iter(until))


def _guarded(known: Sequence[Entry], pending: bool, until: Iterator[float]) -> None:
    with messages("table of runs"):
        _lines(known, pending, next(until, time.monotonic() + _SECONDS))


def _lines(known: Sequence[Entry], pending: bool, until: float) -> None:
    rows = []
    shown = links.chosen("run", [entry.id for entry in known])
    for entry in known:
        found = digest_of(entry, wait=time.monotonic() < until or entry.id == shown)
        rows.append(_line(entry, found))
    if pending and all(row["verdict"] != "…" for row in rows):
        st.rerun()
    frame = pd.DataFrame(rows)
    chosen = [place for place, entry in enumerate(known) if entry.id == shown]
    # What is wrong with a run is long; it is whole when the cell is clicked.
    broken = any("problem" in (digest_of(entry, wait=False) or {}) for entry in known)
    event: Any = st.dataframe(
        frame,
        hide_index=True,
        height=min(36 * (len(frame) + 1) + 2, 218),
        on_select="rerun",
        selection_mode="single-row",
        selection_default={"selection": {"rows": chosen}},
        key=f"runs-{chosen}",
        placeholder=NOT_MEASURED,
        column_config={
            "verdict": st.column_config.TextColumn(width=210 if broken else None),
            "served length": st.column_config.NumberColumn(
                format="%.2f", help="accepted drafted tokens a round, as an engine serves"
            ),
            "onsets": st.column_config.TextColumn(
                help=", ".join(ONSETS.values())
                + ": the step from which on, and in brackets its spread over resampled prompts"
            ),
        },
    )
    picked = event["selection"]["rows"]
    if picked and picked != chosen:
        links.put("run", known[picked[0]].id)
        st.rerun()


def _line(entry: Entry, found: dict[str, Any] | None) -> dict[str, Any]:
    info = entry.info
    switches = info.checkpoint.switches if info else {}
    found = found or {}
    return {
        "run": entry.id,
        "verdict": _word(found) if found else "…",
        "onsets": _starts(found.get("onset", {}), found.get("onset_spread", {})),
        "served length": (found.get("served") or {}).get("mean"),
        "carry": str(switches.get("carry", "")),
        "FC-norm": {True: "yes", False: "no"}.get(switches.get("fc_norm", ""), ""),
        "prompts": f"{measured(entry)} of {len(info.prompts)}" if info else "",
        "target": short_name(info.target.name) if info else "",
        "checkpoint": entry.checkpoint,
        "findings": ", ".join(found.get("codes", ())),
    }


def _starts(onset: dict[str, Any], spread: dict[str, dict[str, Any]]) -> str:
    """The onsets that are a step, with their spread; where there is none, why."""
    found = []
    for key, name in ONSETS.items():
        start = onset.get(key)
        if isinstance(start, int):
            ends = spread.get(key, {})
            found.append(f"{name} {start}{spread_text(ends.get('low'), ends.get('high'), start)}")
    return ", ".join(found or sorted({str(start) for start in onset.values()}))


def _word(found: dict[str, Any]) -> str:
    if "problem" in found:
        return plain(RuntimeError(found["problem"])).replace("\\", "")
    starts = [start for start in found["onset"].values() if isinstance(start, int)]
    if found["kind"] == "drift" and starts:
        return f"drift from step {min(starts)}"
    return {"none": "no drift found", "drift": "drift"}.get(found["kind"], "no verdict")


if __name__ == "__main__":
    page()
