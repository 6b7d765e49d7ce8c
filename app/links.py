"""The state of a page in its address, so that a link opens the same view again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import streamlit as st

_KEPT = "kept"
"""Session state: what was last written into the address, so that it survives a change of page."""


def chosen(name: str, options: Sequence[str], default: str | None = None) -> str:
    """The value of a parameter: what the widget holds, else the address, else what it was on the page before.

    An address that names no option falls back to `default`, else to the first.
    """
    wanted = _wanted(name)
    for value in (wanted, default):
        if value is not None and value in options:
            return value
    return options[0]


def choice(
    widget: Callable[..., Any],
    label: str,
    name: str,
    options: Sequence[str],
    default: str | None = None,
    **settings: Any,
) -> str:
    """One of `options` by a Streamlit widget (selectbox, segmented_control, ...), kept in the address as `name`."""
    key = _key(name)
    value = chosen(name, options, default)
    st.session_state[key] = value
    picked = widget(label, options, key=key, **settings)
    # A segmented control can be emptied by a second click.
    value = picked if picked in options else value
    keep(name, value)
    return str(value)


def choices(label: str, name: str, options: Sequence[str], default: Sequence[str], most: int) -> list[str]:
    """Several of `options`, kept in the address with commas."""
    key = _key(name)
    wanted = _wanted(name)
    values = [value for value in (wanted or "").split(",") if value in options] if wanted is not None else []
    st.session_state[key] = (values or list(default))[:most]
    picked = st.multiselect(label, options, key=key, max_selections=most)
    keep(name, ",".join(picked))
    return list(picked)


def keep(name: str, value: str) -> None:
    """Write a parameter into the address."""
    kept(name, value)
    if st.query_params.get(name) != value:
        st.query_params[name] = value


def put(name: str, value: str) -> None:
    """Set a parameter from a callback, as if its widget had been used."""
    st.session_state[_key(name)] = value
    kept(name, value)
    st.query_params[name] = value


def kept(name: str, value: str) -> None:
    """Remember what the address says."""
    st.session_state.setdefault(_KEPT, {})[name] = value


def _wanted(name: str) -> str | None:
    before = st.session_state.get(_KEPT, {}).get(name)
    address = st.query_params.get(name)
    key = _key(name)
    # Somebody else changed the address: a link, or the browser's back button.
    if address is not None and address != before:
        return address
    if key in st.session_state:
        held = st.session_state[key]
        return ",".join(held) if isinstance(held, list) else held
    return before


def _key(name: str) -> str:
    return f"q-{name}"
