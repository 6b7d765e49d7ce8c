"""A chart on a page: title, what it shows, the chart, its figures to read, and its files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import streamlit as st

from driftscope.app.drawing import Drawn, folded, resized
from driftscope.app.look import GRID, theme_name
from driftscope.show.charts.theme import ThemeName, theme

_WIDE = 860
"""Pixels across which panels of one drawing are laid out; the page scales them to the width that there is."""
_LINE, _NARROW_LINE = 58, 44
"""Characters of a line of a legend in a card, and in a panel beside others."""
_FONT = '"Source Sans", sans-serif'
"""That of the page. Files keep the font of the charts."""


def grid(drawn: Iterable[Drawn], name: str = "charts") -> None:
    """Cards beside each other, as many as there is room for."""
    with st.container(key=f"{GRID}-{name}"):
        for item in drawn:
            card(item)


def card(drawn: Drawn) -> None:
    """One chart with everything around it."""
    layout = "wide" if drawn.wide else f"facets{drawn.beside}" if drawn.beside > 1 else "card"
    with st.container(border=True, key=f"{layout}-{drawn.name}"):
        st.subheader(drawn.title, anchor=False)
        show(drawn)
        with st.container(key=f"about-{drawn.name}"):
            if drawn.sentences:
                st.markdown("\n".join(f"- {prose(sentence)}" for sentence in drawn.sentences))
            st.caption(prose(drawn.about))
            files(drawn)


def show(drawn: Drawn, **options: Any) -> Any:
    """The chart alone. Panels that can stand alone are charts of their own, because only such fill a card."""
    colours = {**theme(theme_name()), "background": "transparent", "font": _FONT}
    padding = {"left": 2, "top": 5, "right": 5, "bottom": 2}
    if drawn.wide:
        plain = {**resized(drawn.spec, _WIDE), "config": colours, "padding": padding, "autosize": "pad"}
        with st.container(key=f"panels-{drawn.name}"):
            return st.vega_lite_chart(plain, theme=None, width="content", key=f"chart-{drawn.name}", **options)
    panels = drawn.panels()
    # Charts below each other start at the same place.
    common = {"config": {**colours, "axisLeft": {"minExtent": 34}}, "padding": padding}
    line = _NARROW_LINE if drawn.beside > 1 else _LINE
    shown = None
    with st.container(key=f"panels-{drawn.name}"):
        for place, panel in enumerate(panels):
            key = f"chart-{drawn.name}" + (f"-{place}" if len(panels) > 1 else "")
            plain = {**folded(panel, line), **common, "autosize": {"type": "fit-x", "contains": "padding"}}
            shown = st.vega_lite_chart(plain, theme=None, width="stretch", key=key, **options)
    return shown


def files(drawn: Drawn) -> None:
    """Figures as a table, chart and data as files. Files are made when they are asked for."""
    look = theme_name()
    with st.container(horizontal=True, gap="small", key=f"files-{drawn.name}"):
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


def prose(text: str) -> str:
    """A sentence as Markdown: words in backticks are code, all else is plain."""
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return escaped(text)
    return "".join(f"`{part}`" if number % 2 and part else escaped(part) for number, part in enumerate(parts))


def _svg(drawn: Drawn, look: ThemeName) -> bytes:
    from driftscope.show.charts.export import svg_of

    return svg_of(drawn.spec, look).encode()


def _png(drawn: Drawn, look: ThemeName) -> bytes:
    from driftscope.show.charts.export import png_of

    return png_of(drawn.spec, look)


def _csv(drawn: Drawn, look: ThemeName) -> bytes:
    return drawn.rows().to_csv(index=False).encode()


_FILES: Sequence[tuple[str, str, Callable[[Drawn, ThemeName], bytes]]] = (
    ("svg", "image/svg+xml", _svg),
    ("png", "image/png", _png),
    ("csv", "text/csv", _csv),
)
