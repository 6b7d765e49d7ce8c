"""A page's probes, as their records declare them: heading, pictures, or the command that measures them."""

from __future__ import annotations

import streamlit as st

from driftscope.app import figures
from driftscope.app.cards import grid
from driftscope.app.library import Entry
from driftscope.app.loading import computed
from driftscope.app.missing import not_measured
from driftscope.app.shell import messages
from driftscope.probes import known
from driftscope.probes.held import record_of


def probe_sections(entry: Entry, page: str) -> None:
    """Every known probe whose record names this page."""
    for name, probe in known().items():
        if record_of(probe).page != page:
            continue
        st.header(figures.heading(name), anchor=False)
        # A damaged shard takes away its own section only.
        with messages(name):
            drawn = computed(figures.of_probe, [entry], name)
            if drawn:
                grid(drawn, name)
            else:
                not_measured(entry, name, f"The {name} probe was not run.")
