"""A section of the acceptance page: what a server's counters said of this drafter."""

from __future__ import annotations

import streamlit as st

from driftscope.app.cards import escaped, grid
from driftscope.app.drawing import Drawn
from driftscope.app.library import Entry
from driftscope.show.charts.engine import engine_positions
from driftscope.show.frames.engine import engine_found, engine_frame, readings_frame

_OUTCOMES = {"same": st.success, "less": st.error, "more": st.warning, "cannot tell": st.warning}


def section(entry: Entry) -> None:
    """Engine, walk and the likeliest reading by position; how to compare where nothing was compared yet."""
    st.header("On a serving engine", anchor=False)
    found = engine_found(entry.folder)
    if found is None:
        st.caption("No engine was compared with this run. With the text of its /metrics:")
        st.code(f"driftscope engine {entry.folder} --metrics FILE", language="bash")
        return
    headline = str(found["headline"])
    _OUTCOMES.get(found["outcome"], st.info)(f"**{escaped(headline[:1].upper() + headline[1:])}.**")
    if found.get("explanation"):
        st.markdown(escaped(str(found["explanation"])))
    for step in found.get("next", ()):
        st.markdown(f"- *look at:* {escaped(str(step))}")
    engine = found["engine"]
    about = (
        f"{engine['source']}: {engine['drafts']:,} drafts of {engine['speculative_tokens']} tokens. The band is where 95% of sound"
        " engines would lie; readings are ranked by the likelihood that the counters give them."
    )
    frame = engine_frame(found)
    grid(
        [
            Drawn.chart(
                "engine",
                "Accepted by position: engine, walk and reading",
                about,
                engine_positions(frame),
                readings_frame(found),
            )
        ],
        "engine",
    )
