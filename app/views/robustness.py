"""What is left under other templates, longer texts and windows of attention."""

from __future__ import annotations

import streamlit as st

from driftscope.app import figures
from driftscope.app.cards import grid
from driftscope.app.loading import computed
from driftscope.app.missing import not_measured
from driftscope.app.shell import current


def page() -> None:
    """The page."""
    entry = current()
    st.title("Robustness", anchor=False)
    for name, title, draw in (
        ("template", "Template: how much depends on how the prompt is wrapped?", figures.template),
        ("length", "Length: where does acceptance break, and does a window rescue it?", figures.length),
    ):
        st.header(title, anchor=False)
        drawn = computed(draw, [entry])
        if drawn:
            grid(drawn, name)
        else:
            not_measured(entry, name, f"The {name} probe was not run.")


if __name__ == "__main__":
    page()
