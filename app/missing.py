"""What to do where a run lacks what a page shows."""

from __future__ import annotations

import shlex

import streamlit as st

from driftscope.app.asking import going_on
from driftscope.app.library import Entry


def not_measured(entry: Entry, probe: str, what: str) -> None:
    """A note with the command that measures it."""
    st.info(f"{what} This goes on with the run:", icon=":material/info:")
    st.code(shlex.join(going_on(entry, probe)), language="bash", wrap_lines=True)
