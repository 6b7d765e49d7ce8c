"""The probes that no other page shows: those of plug-ins, and shards of probes that are not installed here."""

from __future__ import annotations

import streamlit as st

from driftscope.app import figures
from driftscope.app.cards import grid
from driftscope.app.loading import computed
from driftscope.app.shell import current
from driftscope.probes.record import GENERIC_PAGE


def page() -> None:
    """The page."""
    entry = current()
    st.title("Other probes", anchor=False)
    held = computed(figures.of_page, [entry], GENERIC_PAGE)
    if not held:
        st.info("Every probe of this run has a page of its own.", icon=":material/info:")
    for name, heading, drawn in held:
        st.header(heading, anchor=False)
        if drawn:
            grid(drawn, name)
        else:
            st.info("It stored rows, and no figures: `Run.table` reads them.", icon=":material/info:")


if __name__ == "__main__":
    page()
