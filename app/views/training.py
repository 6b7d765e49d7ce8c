"""Many checkpoints of one training on a step axis, renewed while runs of new ones appear."""

from __future__ import annotations

import streamlit as st

from driftscope.app import links, training
from driftscope.app.cards import escaped, grid, prose
from driftscope.app.loading import digest_of
from driftscope.app.shell import entries, messages, watch


def page() -> None:
    """The page."""
    st.title("Training", anchor=False)
    known = entries()
    watch(known)
    found = training.trainings(known)
    if not found:
        st.info(
            "Runs of checkpoints of one training appear here on a step axis: their paths differ in one number, as in"
            " `drafter/step_1000` and `drafter/step_2000`. While training, `DriftCallback` or a loop over"
            " `driftscope probe` fills the folder, and this page follows.",
            icon=":material/info:",
        )
        return
    name = links.choice(st.selectbox, "Training", "training", list(found))
    told = [(step, digest_of(entry) or {}) for step, entry in found[name]]
    frame = training.rows(told)
    with messages("training"):
        if len(frame):
            st.markdown("\n".join(f"- {prose(text)}" for text in training.sentences(frame)))
            grid(training.drawn(frame), "training")
    for (step, entry), (_, digest) in zip(found[name], told, strict=True):
        if "problem" in digest:
            st.caption(f"step {step}: {escaped(entry.id)} cannot be read: {escaped(digest['problem'])}")


if __name__ == "__main__":
    page()
