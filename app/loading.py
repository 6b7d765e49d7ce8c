"""Runs and what is drawn of them, kept as long as the folders stay as they are."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import streamlit as st
from altair.utils.schemapi import debug_mode

from driftscope.app import swatches
from driftscope.app.digest import Digest, digest, store, stored
from driftscope.app.figures import parts
from driftscope.app.library import Entry, signature
from driftscope.errors import DriftscopeError, RunError
from driftscope.runs.run import Run
from driftscope.show.frames import Runs, labelled

# Arrow's own allocator gives memory back after every file; getting it again page by page takes longer than reading does.
pa.set_memory_pool(pa.system_memory_pool())


def open_run(entry: Entry) -> Run:
    """The run of an entry. Raises RunError if it is none that can be read."""
    if entry.info is None:
        raise RunError(entry.problem)
    return _run(str(entry.folder), signature(entry.folder))


def damage(run: Run) -> str:
    """What of a run cannot be read and is left out, in a line; "" where all of it can."""
    if not run.left_out:
        return ""
    count, (shard, why) = len(run.left_out), next(iter(run.left_out.items()))
    what = (
        f"{shard.parent.name}/{shard.name}"
        if count == 1
        else f"{count} shards, the first {shard.parent.name}/{shard.name},"
    )
    return f"Damaged and left out: {what} ({why})."


def computed(what: Callable[..., Any], entries: Sequence[Entry], *options: Any) -> Any:
    """`what(runs, *options)`, computed once while the runs stay the same. Options must be plain values."""
    keys = tuple((str(entry.folder), signature(entry.folder)) for entry in entries)
    runs = [open_run(entry) for entry in entries]
    found = _computed(f"{what.__module__}.{what.__qualname__}", keys, options, what, runs)
    return swatches.dressed(found, swatches.labelled(list(labelled(runs)), entries))


def digest_of(entry: Entry, *, wait: bool = True) -> Digest | None:
    """The digest of a run; without `wait` None where it would have to be computed."""
    if entry.info is None:
        return {"problem": entry.problem}
    key = signature(entry.folder)
    found = _digests().get(key) or stored(key)
    if found is None and wait:
        try:
            found = digest(open_run(entry), computed(parts, [entry])[0])
            store(key, found)
        except DriftscopeError as error:
            found = {"problem": str(error)}
            store(key, found)
        except Exception as error:
            # A fault with one run must not take away the table of all.
            logging.getLogger("driftscope").exception("%s", entry.folder)
            found = {"problem": f"{type(error).__name__}: {error}"}
    if found is not None:
        _digests()[key] = found
    return found


def kept(what: Callable[[Runs], Digest], entries: Sequence[Entry]) -> Digest:
    """`what(runs)`, a JSON object, kept on disk while the runs stay the same."""
    key = " ".join([what.__qualname__, *(signature(entry.folder) for entry in entries)])
    found = _digests().get(key) or stored(key)
    if found is None:
        with st.spinner("comparing the runs"):
            found = what([open_run(entry) for entry in entries])
        store(key, found)
    _digests()[key] = found
    return found


@st.cache_resource(max_entries=6, show_spinner="reading the run")
def _run(folder: str, signature: str) -> Run:
    run = Run.open(folder)
    run.leave_out_damaged()
    return run


@st.cache_data(max_entries=300, show_spinner="computing figures")
def _computed(name: str, keys: tuple[tuple[str, str], ...], options: tuple[Any, ...], _what: Any, _runs: Runs) -> Any:
    # Altair checks every part of a chart as it is made; tests have done so for ours.
    with debug_mode(False):
        return _what(_runs, *options)


@st.cache_resource
def _digests() -> dict[str, Digest]:
    return {}
