"""Where attention goes: parts of the context, excess over no drafting, heads."""

from __future__ import annotations

import streamlit as st

from driftscope.app import figures, head_gallery, links
from driftscope.app.cards import grid
from driftscope.app.library import Entry
from driftscope.app.loading import computed
from driftscope.app.marks import onsets_of
from driftscope.app.missing import not_measured
from driftscope.app.shell import current
from driftscope.app.views.norms import FEEDS
from driftscope.show.charts.theme import BUCKET_NAMES

_PARTS = {"sum": "self-generated as one", "split": "drafted and current apart"}
_BUCKETS = ("self_generated", "sink", "prompt", "committed", "drafted", "current")


def page() -> None:
    """The page."""
    entry = current()
    st.title("Attention", anchor=False)
    with st.container(horizontal=True, gap="medium"):
        feed = links.choice(st.segmented_control, "Fed with", "feed", list(FEEDS), format_func=lambda name: FEEDS[name])
        parts = links.choice(
            st.segmented_control, "Excess", "parts", list(_PARTS), format_func=lambda name: _PARTS[name]
        )
    drawn = computed(figures.attention, [entry], feed, parts == "split", onsets_of([entry]))
    if not drawn:
        not_measured(entry, "attention", "The undisturbed chains were not run, which attention is read from.")
        return
    grid(drawn)
    _heads(entry, feed)


def _heads(entry: Entry, feed: str) -> None:
    st.header("Heads", anchor=False)
    row = st.container(horizontal=True, gap="medium")
    with row:
        bucket = links.choice(
            st.segmented_control,
            "Sorted by how much moved to or from",
            "towards",
            _BUCKETS,
            format_func=lambda name: BUCKET_NAMES[name],
        )
    ranked = computed(figures.ranking, [entry], bucket, feed)
    if ranked.empty:
        st.info("Attention by head was not recorded for this part.", icon=":material/info:")
        return
    names = [f"{layer}.{head}" for layer, head in zip(ranked["layer"], ranked["head"], strict=True)]
    told = {
        name: f"layer {layer}, head {head} ({head_gallery.direction(mean)})"
        for name, layer, head, mean in zip(names, ranked["layer"], ranked["head"], ranked["mean"], strict=True)
    }
    with row:
        name = links.choice(st.selectbox, "One head", "head", names, format_func=lambda name: told[name], width=260)
    layer, head = (int(part) for part in name.split("."))
    head_gallery.show(computed(head_gallery.excess, [entry], feed), ranked, name)
    head_gallery.lead(computed(head_gallery.by_prompt, [entry], layer, head, bucket, feed), entry.id, name, bucket)
    grid(
        [*computed(figures.head_grid, [entry], bucket, feed), *computed(figures.one_head, [entry], layer, head, feed)],
        "heads",
    )


if __name__ == "__main__":
    page()
