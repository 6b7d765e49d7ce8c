"""What stands around a page: the runs that there are, and the one that is looked at."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import streamlit as st

from driftscope.app import jobs, links
from driftscope.app.cards import escaped
from driftscope.app.library import Entry, find_runs, given_paths
from driftscope.errors import DriftscopeError, RunError

_CURRENT, _GONE = "current-run", "missing-run"
"""Session state: the entry of this page; the run that a link asked for, and the one shown instead."""


def entries() -> list[Entry]:
    """Every run that the app knows of, those started here included."""
    return find_runs(dict.fromkeys([*given_paths(), *jobs.folders()]))


def choose_run() -> bool:
    """The run in the sidebar; False, with a message on the page, where there is none."""
    found = entries()
    if all(entry.info is None for entry in found):
        st.info(
            "There is no run yet. Measure one with `driftscope probe path/to/drafter`, on the page *New run*, or start the"
            " app with the folder that holds your runs: `driftscope app path/to/runs`.",
            icon=":material/info:",
        )
    if not found:
        return False
    names = [entry.id for entry in found]
    asked = st.query_params.get("run")
    with st.sidebar:
        name = links.choice(st.selectbox, "Run", "run", names)
        entry = next(entry for entry in found if entry.id == name)
        _facts(entry)
    if asked is not None and asked not in names:
        st.session_state[_GONE] = (asked, name)
    gone, instead = st.session_state.get(_GONE, ("", ""))
    if instead == name:
        st.warning(f"There is no run {escaped(gone)} here; this is {escaped(name)}.", icon=":material/link_off:")
    st.session_state[_CURRENT] = entry
    return True


def current() -> Entry:
    """The run of this page. Raises RunError if it cannot be read."""
    entry: Entry = st.session_state[_CURRENT]
    if entry.info is None:
        raise RunError(entry.problem)
    return entry


@contextmanager
def messages(title: str) -> Iterator[None]:
    """Whatever goes wrong inside is a message. Fragments need their own: Streamlit shows what leaves one."""
    try:
        yield
    except DriftscopeError as error:
        st.error(plain(error), icon=":material/error:")
    except Exception as error:
        logging.getLogger("driftscope").exception("page %s", title)
        st.error(
            f"This could not be drawn from this run: {type(error).__name__}: {plain(error)}. The terminal that the app was"
            " started from shows where.",
            icon=":material/error:",
        )


def plain(error: BaseException) -> str:
    """An error as one line of Markdown."""
    return escaped(" ".join(str(error).split()))


def _facts(entry: Entry) -> None:
    info = entry.info
    if info is None:
        return
    switches = info.checkpoint.switches
    parts = [f"**{escaped(entry.checkpoint)}** for {escaped(entry_target(entry))}", escaped(info.checkpoint.layout)]
    if "carry" in switches:
        parts.append(f"{escaped(str(switches['carry']))}-norm carry")
    if "fc_norm" in switches:
        parts.append("FC-norm" if switches["fc_norm"] else "no FC-norm")
    st.caption(" · ".join(parts))
    done = measured(entry)
    if done < len(info.prompts):
        st.caption(f":material/hourglass_top: {done} of {len(info.prompts)} prompts measured so far")


def entry_target(entry: Entry) -> str:
    """Short name of the target."""
    from driftscope.runs.naming import short_name

    return short_name(entry.info.target.name) if entry.info else ""


def measured(entry: Entry) -> int:
    """Prompts whose clean chains are there."""
    folder = entry.folder / "shards" / "clean"
    return sum(not path.name.startswith(".") for path in folder.iterdir()) if folder.is_dir() else 0
