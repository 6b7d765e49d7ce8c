"""The answer first: what drift costs and why, the 2 x 2 where there is one, all runs; then the pictures and the findings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import streamlit as st

from driftscope.app import figures, links, look, run_table, swatches
from driftscope.app.answer_html import run_card, square_card
from driftscope.app.cards import card, escaped, prose
from driftscope.app.library import Entry
from driftscope.app.loading import computed, digest_of, kept, open_run
from driftscope.app.marks import onsets_of
from driftscope.app.missing import offer
from driftscope.app.severity import severity
from driftscope.app.shell import current, entries, messages
from driftscope.app.square import corners, square
from driftscope.findings import Finding
from driftscope.findings.causes import UNTESTED
from driftscope.findings.verdict import Reading, bounds, figure
from driftscope.show.report.content import RunPart, evidence_text
from driftscope.show.tables import NOT_MEASURED, interval_text

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
    answer = st.container()
    table = st.container()
    try:
        entry = current()
        with answer:
            with st.container(horizontal=True, vertical_alignment="center", gap="small", key="run-title"):
                st.html(swatches.of(entry).svg(20), width="content")
                st.title(escaped(entry.id), anchor=False)
            _answer(entry, known)
        _run(entry)
    finally:
        if len(known) > 1:
            with table:
                run_table.show(known)


def _answer(entry: Entry, known: Sequence[Entry]) -> None:
    """The budget of the run, and the 2 x 2 where there is one."""
    found = digest_of(entry) or {}
    if "problem" in found:
        # What went wrong with the digest must not take away the verdict, if there is one.
        part: RunPart = computed(figures.parts, [entry])[0]
        found = {"kind": "unknown", "headline": part.verdict.headline, "cause": part.verdict.cause, "cost": None}
    sound = {one.id: "problem" not in (digest_of(one, wait=False) or {}) for one in known}
    four = corners(known, sound, entry)
    cause = found["cause"]
    if four:
        others = ", ".join(one.id for one in four if one.id != entry.id)
        cause = cause.replace(UNTESTED, f"tested here by {others}: see the 2 x 2")
    with st.container(key="answers"):
        with st.container(key="answer-run"):
            st.html(run_card(found["headline"], cause, found["cost"], severity(found)))
            if not found["cost"] and entry.info is not None:
                offer(entry, "cost", "What drift costs was not measured: how many accepted tokens, and by which path.")
        if four:
            with st.container(key="answer-square"), messages("2 x 2"):
                _square(four, entry)


def _square(four: Sequence[Entry], entry: Entry) -> None:
    """The four runs; a click on a name opens it."""
    found = kept(square, four)
    if "problem" in found:
        st.caption(escaped(found["problem"]))
        return
    ordered = [four[place] for place in found["order"]]
    chosen = next((place for place, one in enumerate(ordered) if one.id == entry.id), None)
    st.html(square_card(found, [swatches.of(one) for one in ordered], chosen))
    with st.container(horizontal=True, gap="small", key="corners"):
        for one in ordered:
            st.button(
                f"{swatches.of(one).sign} {escaped(one.id)}",
                key=f"corner-{one.id}",
                type="tertiary",
                disabled=one.id == entry.id,
                help="open this run",
                on_click=links.put,
                args=("run", one.id),
            )
        st.page_link("views/compare.py", label="Compare them", icon=":material/compare_arrows:")


def _run(entry: Entry) -> None:
    """What is drawn of the chosen run, and what was found."""
    part: RunPart = computed(figures.parts, [entry])[0]
    _onsets(part)
    marks = onsets_of([entry])
    left, right = st.columns([5, 2], gap="medium")
    with left:
        # A damaged shard takes away its own card only.
        with messages("cost"):
            for item in computed(figures.probe, [entry], "cost", marks):
                card(item)
        with messages("overview"):
            for item in computed(figures.overview, [entry], marks):
                card(item)
    with right, messages("figures of a step"):
        _step(entry, part)
    _findings(part)
    with st.expander("How it was measured"):
        look.facts(part.facts)
        for note in part.notes:
            st.markdown(f"- {prose(note)}")


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
            f":{colour}-badge[{finding.code}] **{escaped(finding.title)}**{since}  \n{prose(finding.statement)}"
        )
        if finding.advice or finding.evidence:
            with st.popover("Evidence and what to try", type="tertiary"):
                for line in finding.evidence:
                    st.markdown(f"- {prose(evidence_text(line))}")
                for advice in finding.advice:
                    st.markdown(f"- *try:* {prose(advice)}")


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
    if ends is None:
        return ""
    low, high = (interval_text(end, end, end, form, False) for end in ends)
    return f"95% {low} to {high}"


if __name__ == "__main__":
    page()
