"""What stands around a page: the runs that there are, and the one that is looked at."""

from __future__ import annotations

import html
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import streamlit as st

from driftscope.app import jobs, links, swatches
from driftscope.app.cards import escaped
from driftscope.app.library import Entry, find_runs, given_paths
from driftscope.app.loading import damage, digest_of, open_run
from driftscope.app.square import corners
from driftscope.errors import DriftscopeError, RunError

_CURRENT, _GONE = "current-run", "missing-run"
"""Session state: the entry of this page; the run that a link asked for, and the one shown instead."""
_EVERY = "4s"
"""How often the folders are looked through."""


def entries() -> list[Entry]:
    """Every run that the app knows of, those started here included."""
    found = _found()
    swatches.remember(found)
    return found


def _found() -> list[Entry]:
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
    by_id = dict(zip(names, found, strict=True))
    told = {entry.id: f"{swatches.of(entry).sign} {entry.id}" for entry in found}
    asked = st.query_params.get("run")
    first = names[0] if links.known("run", names) else _first(found).id
    with st.sidebar:
        name = links.choice(
            st.selectbox,
            "Run",
            "run",
            names,
            first,
            format_func=told.__getitem__,
            said=False,
        )
        entry = by_id[name]
        _facts(entry)
        watch(found)
    if asked is not None and asked not in names:
        st.session_state[_GONE] = (asked, name)
    gone, instead = st.session_state.get(_GONE, ("", ""))
    if instead == name:
        st.warning(f"There is no run {escaped(gone)} here; this is {escaped(name)}.", icon=":material/link_off:")
    st.session_state[_CURRENT] = entry
    return True


def _first(found: Sequence[Entry]) -> Entry:
    """What an address without a run opens: of a 2 x 2 the run without either switch, else the newest; never a broken one."""
    started = [entry for entry in found if entry.info is not None and measured(entry)]
    for entry in started:
        told = digest_of(entry) or {}
        if "problem" in told or told.get("left_out"):
            continue
        four = corners(started, {}, entry)
        corner = four[0] if four else entry
        return corner if corner is entry or "problem" not in (digest_of(corner) or {}) else entry
    return next((entry for entry in found if entry.info is not None), found[0])


def watch(found: Sequence[Entry]) -> None:
    """Look every few seconds whether runs came, went, began or were finished."""
    st.fragment(_look_again, run_every=_EVERY)(_state(found))


def _look_again(before: object) -> None:
    if _state(_found()) != before:
        st.rerun()


def _state(found: Sequence[Entry]) -> list[tuple[str, int, bool]]:
    """What a page is drawn anew for; not every prompt of a measurement that goes on."""
    counts = [(entry, measured(entry), len(entry.info.prompts) if entry.info else 0) for entry in found]
    return [(entry.id, min(done, 1), done >= wanted > 0) for entry, done, wanted in counts]


def current() -> Entry:
    """The run of this page. Raises RunError if it cannot be read."""
    entry: Entry = st.session_state[_CURRENT]
    if entry.info is None:
        raise RunError(entry.problem)
    told = damage(open_run(entry))
    if told:
        st.warning(plain(RunError(told)), icon=":material/broken_image:")
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
    st.html(f"{swatches.of(entry).svg()} <b>{html.escape(entry.id)}</b>")
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
