"""The state of a page in its address, so that a link opens the same view again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import streamlit as st

from driftscope.app.cards import escaped

_KEPT = "kept"
"""Session state: what was last written into the address, so that it survives a change of page."""
_MISSING = "missing-options"
"""Session state: by parameter, what an address asked for in vain, and what is shown instead."""


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
    said: bool = True,
    **settings: Any,
) -> str:
    """One of `options` by a Streamlit widget (selectbox, segmented_control, ...), kept in the address as `name`.

    An address that asks for something else is told so, unless `said` is False, as long as what is shown instead is shown.
    """
    key = _key(name)
    asked = _asked(name)
    value = chosen(name, options, default)
    st.session_state[key] = value
    picked = widget(label, options, key=key, **settings)
    # A segmented control can be emptied by a second click.
    value = picked if picked in options else value
    keep(name, value)
    if said:
        _say(label, name, asked if asked not in options else None, str(value))
    return str(value)


def known(name: str, options: Sequence[str]) -> bool:
    """Whether the address, or the page before, names one of the options."""
    return _wanted(name) in options


def only(names: Sequence[str]) -> None:
    """Take parameters of other pages out of the address; what they were is remembered."""
    for name in list(st.query_params):
        if name not in names:
            del st.query_params[name]


def _asked(name: str) -> str | None:
    """What somebody else wrote into the address since."""
    address = st.query_params.get(name)
    return address if address != st.session_state.get(_KEPT, {}).get(name) else None


def _say(label: str, name: str, asked: str | None, shown: str) -> None:
    missing: dict[str, tuple[str, str]] = st.session_state.setdefault(_MISSING, {})
    if asked is not None:
        missing[name] = (asked, shown)
    gone, instead = missing.get(name, ("", ""))
    if gone and instead == shown:
        st.warning(f"{label}: there is no {escaped(gone)} here; this is {escaped(shown)}.", icon=":material/link_off:")


def choices(label: str, name: str, options: Sequence[str], default: Sequence[str], most: int) -> list[str]:
    """Several of `options`, kept in the address with commas."""
    key = _key(name)
    wanted = _wanted(name)
    values = [value for value in (wanted or "").split(",") if value in options] if wanted is not None else []
    gone = [value for value in (_asked(name) or "").split(",") if value and value not in options]
    st.session_state[key] = (values or list(default))[:most]
    picked = st.multiselect(label, options, key=key, max_selections=most)
    keep(name, ",".join(picked))
    _say(label, name, ", ".join(gone) or None, ", ".join(picked))
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
