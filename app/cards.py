"""A chart on a page: title, what it shows, the chart, its figures to read, and its files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import streamlit as st

from driftscope.app.drawing import Drawn, folded, resized
from driftscope.app.look import GRID, theme_name
from driftscope.charts.theme import ThemeName, theme

_WIDE = 870
"""Pixels inside of a card of two columns at 1280."""


def grid(drawn: Iterable[Drawn], name: str = "charts") -> None:
    """Cards beside each other, as many as there is room for."""
    with st.container(key=f"{GRID}-{name}"):
        for item in drawn:
            card(item)


def card(drawn: Drawn) -> None:
    """One chart with everything around it."""
    with st.container(border=True, key=f"{'wide' if drawn.wide else 'card'}-{drawn.name}"):
        st.subheader(drawn.title, anchor=False)
        show(drawn)
        for sentence in drawn.sentences:
            st.markdown(f"- {escaped(sentence)}")
        st.caption(escaped(drawn.about))
        files(drawn)


def show(drawn: Drawn, **options: Any) -> Any:
    """The chart alone. Panels below each other are charts of their own, because only such fill a card."""
    colours = {**theme(theme_name()), "background": "transparent"}
    if drawn.wide:
        plain = {**resized(drawn.spec, _WIDE), "config": colours, "autosize": "pad"}
        return st.vega_lite_chart(plain, theme=None, width="content", key=f"chart-{drawn.name}", **options)
    panels = drawn.panels()
    shown = None
    for place, panel in enumerate(panels):
        key = f"chart-{drawn.name}" + (f"-{place}" if len(panels) > 1 else "")
        plain = {**folded(panel), "config": colours, "autosize": {"type": "fit-x", "contains": "padding"}}
        shown = st.vega_lite_chart(plain, theme=None, width="stretch", key=key, **options)
    return shown


def files(drawn: Drawn) -> None:
    """Figures as a table, chart and data as files. Files are made when they are asked for."""
    look = theme_name()
    with st.container(horizontal=True, gap="small"):
        if len(drawn.table):
            with st.popover("Figures", icon=":material/table_rows:", type="tertiary"):
                st.dataframe(drawn.table, hide_index=True, width="content")
        with st.popover("Download", icon=":material/download:", type="tertiary"):
            for kind, mime, make in _FILES:
                st.download_button(
                    kind.upper(),
                    partial(make, drawn, look),
                    f"{drawn.name}.{kind}",
                    mime,
                    key=f"{kind}-{drawn.name}",
                    on_click="ignore",
                    width="stretch",
                )


def escaped(text: str) -> str:
    """Plain text inside Markdown: names from files must not become markup."""
    return "".join(f"\\{char}" if char in "\\`*_[]<>#$~:|" else char for char in text)


def _svg(drawn: Drawn, look: ThemeName) -> bytes:
    from driftscope.charts.export import svg_of

    return svg_of(drawn.spec, look).encode()


def _png(drawn: Drawn, look: ThemeName) -> bytes:
    from driftscope.charts.export import png_of

    return png_of(drawn.spec, look)


def _csv(drawn: Drawn, look: ThemeName) -> bytes:
    return drawn.rows().to_csv(index=False).encode()


_FILES: Sequence[tuple[str, str, Callable[[Drawn, ThemeName], bytes]]] = (
    ("svg", "image/svg+xml", _svg),
    ("png", "image/png", _png),
    ("csv", "text/csv", _csv),
)
