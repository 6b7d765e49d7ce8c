"""What is left under other templates, longer texts and windows of attention."""

from __future__ import annotations

import streamlit as st

from driftscope.app.probe_sections import probe_sections
from driftscope.app.shell import current


def page() -> None:
    """The page."""
    entry = current()
    st.title("Robustness", anchor=False)
    probe_sections(entry, "robustness")


if __name__ == "__main__":
    page()
