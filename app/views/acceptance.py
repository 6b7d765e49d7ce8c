"""How many drafted tokens survive, step by step and in rounds as an engine serves them, and beyond the depth of training."""

from __future__ import annotations

import streamlit as st

from driftscope.app import counters, deciding, figures
from driftscope.app.cards import grid
from driftscope.app.loading import computed
from driftscope.app.missing import not_measured
from driftscope.app.shell import current
from driftscope.show.report.content import RunPart


def page() -> None:
    """The page."""
    entry = current()
    st.title("Acceptance", anchor=False)
    drawn = computed(figures.probe, [entry], "acceptance")
    if not drawn:
        not_measured(entry, "acceptance", "The undisturbed chains were not run, which acceptance is read from.")
    part: RunPart = computed(figures.parts, [entry])[0]
    for column, (name, text, meaning) in zip(st.columns(max(len(part.lengths), 1)), part.lengths, strict=False):
        value, _, interval = text.partition(" ")
        with column.container(border=True, key=f"length-{name}", height="stretch"):
            st.metric(f"length {name}" if name.startswith("with") else f"{name} length", f"{value} tokens")
            st.caption(f"95% {interval.strip('()')}; {meaning}" if interval else meaning)
    if drawn:
        grid(drawn, "acceptance")
    st.header("Beyond the depth of training", anchor=False)
    deeper = computed(figures.probe, [entry], "depth")
    if deeper:
        grid(deeper, "depth")
    else:
        not_measured(entry, "depth", "The depth probe was not run.")
    deciding.section(entry)
    counters.section(entry)


if __name__ == "__main__":
    page()
