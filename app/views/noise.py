"""How much acceptance is left under noise, and what holding the size of the state removes."""

from __future__ import annotations

import streamlit as st

from driftscope.app.probe_sections import probe_sections
from driftscope.app.shell import current


def page() -> None:
    """The page."""
    entry = current()
    st.title("Noise and pin", anchor=False)
    probe_sections(entry, "noise")


if __name__ == "__main__":
    page()
