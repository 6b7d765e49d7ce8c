"""The mark of every run on the pages: one colour and one shape, which stay when other runs come and go."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import streamlit as st

from driftscope.app.drawing import Drawn
from driftscope.app.library import Entry
from driftscope.show.run_marks import Mark, remarked, run_marks

_MARKS = "marks"
"""Session state: the mark of each run, by its id."""
_NONE = Mark("#8a929c", "circle")
"""Of a folder that is no run."""
Labelled = tuple[tuple[str, str, str], ...]
"""Name in the charts, colour and shape, as plain values."""


def remember(entries: Sequence[Entry]) -> None:
    """Give every run its mark."""
    st.session_state[_MARKS] = run_marks({str(entry.folder): entry.info for entry in entries if entry.info is not None})


def of(entry: Entry) -> Mark:
    """The mark of a run."""
    found: dict[str, Mark] = st.session_state.get(_MARKS, {})
    return found.get(str(entry.folder), _NONE)


def image(entry: Entry) -> str:
    """The mark as the address of an image, for a cell of a table."""
    return f"data:image/svg+xml;base64,{base64.b64encode(of(entry).svg(16).encode()).decode()}"


def labelled(names: Sequence[str], entries: Sequence[Entry]) -> Labelled:
    """The marks of runs by the names that charts give them."""
    return tuple((name, of(entry).colour, of(entry).shape) for name, entry in zip(names, entries, strict=True))


def dressed(content: Any, marks: Labelled) -> Any:
    """Charts with every run in its own colour and shape; anything else as it is."""
    if isinstance(content, Drawn):
        known = {name: Mark(colour, shape) for name, colour, shape in marks}
        return replace(content, spec=remarked(content.spec, known))
    if isinstance(content, list | tuple) and all(isinstance(part, Drawn) for part in content):
        return type(content)(dressed(part, marks) for part in content)
    if isinstance(getattr(content, "drawn", None), tuple):
        return replace(content, drawn=dressed(content.drawn, marks))
    return content
