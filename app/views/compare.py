"""Runs side by side: which of FC-norm and post-norm suppresses drift, and by how much."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

import streamlit as st

from driftscope.app import figures, links, look, swatches
from driftscope.app.answer_html import square_card
from driftscope.app.cards import escaped, files, grid, prose, show
from driftscope.app.library import Entry
from driftscope.app.loading import computed, digest_of, kept
from driftscope.app.shell import entries
from driftscope.app.square import CORNERS, corners, square
from driftscope.show.charts.linked import STEP

_MOST, _FIRST = 12, 4
"""Runs that can be compared, and that a first look compares."""


def page() -> None:
    """The page."""
    st.title("Compare", anchor=False)
    known = [entry for entry in entries() if entry.info is not None]
    if len(known) < 2:
        st.info(
            "A comparison takes two runs of one target on the same prompts; here there are fewer.",
            icon=":material/info:",
        )
        return
    by_id = {entry.id: entry for entry in known}
    picked = links.choices("Runs", "runs", list(by_id), _alike(known), _MOST)
    if len(picked) < 2:
        st.info("Choose a second run.", icon=":material/info:")
        return
    chosen = [by_id[name] for name in picked]
    found: figures.Compared = computed(figures.compared, chosen)
    # One order, so that a run has the same colour in every chart.
    order = {folder: place for place, folder in enumerate(found.folders)}
    chosen.sort(key=lambda entry: order.get(str(entry.folder), 0))
    if found.why_not:
        st.warning(escaped(found.why_not), icon=":material/rule:")
    else:
        parts = "".join(f'<div style="padding:.1rem 0">{html.escape(part)}</div>' for part in _parts(found.headline))
        look.callout(f'<div style="font-size:1rem;font-weight:600">{parts}</div>', "#0072B2")
        st.caption(escaped(found.about))
        for note in found.notes:
            st.caption(f":material/info: {prose(note)}")
        _corners(chosen)
    _linked(chosen)
    if found.sentences:
        st.header("What differs", anchor=False)
        st.markdown("\n".join(f"- {escaped(sentence)}" for sentence in found.sentences))
    grid(found.drawn, "compare")


def _corners(chosen: Sequence[Entry]) -> None:
    """The 2 x 2, where these are its four runs."""
    four = corners(chosen, {}, chosen[0]) if len(chosen) == len(CORNERS) else []
    found = kept(square, four) if four else {"problem": ""}
    if "problem" not in found:
        marks = [swatches.of(four[int(place)]) for place in found["order"]]
        st.html(
            square_card(
                {**found, "headline": "Carry x FC-norm, each corner against the one without either"}, marks, None
            )
        )


def _parts(headline: str) -> list[str]:
    """One line per switch: `this; that` is hard to read as one block."""
    parts = headline.split("; ")
    return [*(f"{part};" for part in parts[:-1]), parts[-1]]


def _alike(known: Sequence[Entry]) -> list[str]:
    """The newest run and those of the same target, as many as fit; not those that are known to be damaged."""
    sound = [entry for entry in known if "problem" not in (digest_of(entry, wait=False) or {})]
    by_target: dict[str, list[str]] = {}
    for entry in sound:
        by_target.setdefault(entry.info.target.fingerprint if entry.info else "", []).append(entry.id)
    same = next(iter(by_target.values()), [])
    return (same if len(same) > 1 else [entry.id for entry in sound])[:_FIRST]


def _linked(chosen: Sequence[Entry]) -> None:
    """Charts that share what is picked, and beside them the figures of the step that is."""
    for drawn in computed(figures.side_by_side, chosen):
        with st.container(key=f"{look.GRID}-linked"):
            with st.container(border=True, key="wide-linked"):
                st.subheader(drawn.title, anchor=False)
                _pick(show(drawn, on_select="rerun", selection_mode=[STEP]))
                with st.container(key="about-linked"):
                    st.caption(escaped(drawn.about))
                    files(drawn)
            rows = drawn.rows()
            if len(rows):
                with st.container(border=True, key="wide-step"):
                    names = [str(step) for step in sorted(set(rows["step"]))]
                    step = links.choice(st.segmented_control, "Figures at step", "step", names, names[-1])
                    table = computed(figures.at_step, chosen, int(step))
                    look.facts(table.to_numpy().tolist(), list(table))
                    st.caption("What has no unit is a share, 0 to 1; in brackets 95% intervals over prompts.")


def _pick(event: Any) -> None:
    """A click into the chart chooses the step, once."""
    points = event["selection"].get(STEP, []) if event else []
    clicked = str(int(points[0]["step"])) if points and "step" in points[0] else ""
    if clicked and st.session_state.get("clicked-step") != clicked:
        links.put("step", clicked)
    st.session_state["clicked-step"] = clicked


if __name__ == "__main__":
    page()
