"""How large things are: the carry, every site, the target's boundaries, the aux features."""

from __future__ import annotations

import streamlit as st

from driftscope.app import figures, links
from driftscope.app.cards import grid
from driftscope.app.loading import computed
from driftscope.app.missing import not_measured
from driftscope.app.shell import current
from driftscope.show.frames import SITE_MODES
from driftscope.show.words import UNIT_NAMES

_MODES = {"size": "raw", "growth": "over step 1", "matched": "matched"}
_ABOUT = ", ".join(f"{_MODES[mode]}: {about}" for mode, about in SITE_MODES.items() if mode != "growth")
FEEDS = {"drafted": "its own tokens", "text": "the target's text"}


def page() -> None:
    """The page."""
    entry = current()
    st.title("Norms", anchor=False)
    with st.container(horizontal=True, gap="medium"):
        unit = links.choice(
            st.segmented_control,
            "Unit",
            "unit",
            list(UNIT_NAMES),
            format_func=_unit,
            help="L2 is RMS x sqrt of the width",
        )
        mode = links.choice(
            st.segmented_control, "Sites", "mode", list(SITE_MODES), format_func=lambda name: _MODES[name], help=_ABOUT
        )
        feed = links.choice(st.segmented_control, "Fed with", "feed", list(FEEDS), format_func=lambda name: FEEDS[name])
    drawn = computed(figures.norms, [entry], unit, mode, feed)
    if not drawn:
        not_measured(entry, "norms", "The undisturbed chains were not run, which norms are read from.")
    grid(drawn)


def _unit(name: str) -> str:
    return "RMS" if name == "rms" else "L2"


if __name__ == "__main__":
    page()
