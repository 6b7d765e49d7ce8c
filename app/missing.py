"""What to do where a run lacks what a page shows: measure it from here."""

from __future__ import annotations

import shlex

import streamlit as st

from driftscope.app import jobs, rights
from driftscope.app.asking import going_on
from driftscope.app.cards import escaped
from driftscope.app.library import Entry
from driftscope.app.pace import expected
from driftscope.app.shell import plain
from driftscope.app.watching import watch
from driftscope.errors import RunError
from driftscope.probes import available


def not_measured(entry: Entry, probe: str, what: str) -> None:
    """A note, what the probe would show, and the button that measures it."""
    offer(entry, probe, f"{what} It would answer: {available()[probe].question}")


def offer(entry: Entry, probe: str, what: str) -> None:
    """ "Measure now" with about how long it takes, or the run of it that goes on; the command stands behind."""
    words = going_on(entry, probe)
    job = jobs.job_of(entry.folder)
    # Where several are missing, the one that is measured is watched once.
    if job is not None and set(words[1:]) <= set(job.arguments) and (job.alive or not job.whole):
        watch(job)
        return
    if job is not None and job.alive:
        told = f"{escaped(what)} This run is being filled already: see *New run*."
        st.info(told, icon=":material/hourglass_top:")
        return
    with st.container(border=True, key=f"offer-{probe}"):
        st.markdown(f":material/info: {escaped(what)}")
        with st.container(horizontal=True, vertical_alignment="center"):
            pressed = st.button(
                "Measure now",
                icon=":material/play_arrow:",
                key=f"measure-{probe}",
                disabled=not rights.may_start(),
                help=rights.WHY_NOT if not rights.may_start() else None,
            )
            st.caption(escaped(expected(entry, probe)))
            with st.popover("The command", icon=":material/terminal:", type="tertiary"):
                st.code(shlex.join(words), language="bash", wrap_lines=True)
    if pressed and rights.may_start():
        try:
            jobs.start(words[1:], entry.folder)
        except RunError as error:
            st.error(plain(error), icon=":material/error:")
            return
        st.rerun()
