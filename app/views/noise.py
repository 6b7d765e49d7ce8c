"""How much acceptance is left under noise, and what holding the size of the state removes."""

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
    st.title("Noise and pin", anchor=False)
    st.header("Noise: how much length is left?", anchor=False)
    drawn = computed(figures.noise, [entry])
    if drawn:
        grid(drawn, "noise")
    else:
        not_measured(entry, "noise", "The noise probe was not run.")
    st.header("Pin: how much of the drift does the size of the state cause?", anchor=False)
    pinned = computed(figures.pin, [entry])
    if pinned:
        grid(pinned, "pin")
    else:
        not_measured(entry, "pin", "The pin probe was not run.")


if __name__ == "__main__":
    page()
