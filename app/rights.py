"""What a browser may ask for: which folders are read, and whether measurements may be started."""

from __future__ import annotations

import hmac
import json
import os
from collections.abc import Iterable
from pathlib import Path

import streamlit as st

from driftscope.app.library import given_paths
from driftscope.errors import DriftscopeError

FOLDERS = "DRIFTSCOPE_APP_FOLDERS"
"""Environment variable: folders besides those of the runs, as JSON."""
STARTING = "DRIFTSCOPE_APP_STARTING"
"""Environment variable: `yes`, `no`, or `token`."""
TOKEN = "DRIFTSCOPE_APP_TOKEN"
"""Environment variable: what `?token=` has to say where starting takes one."""
WHY_NOT = (
    "Starting measurements is off here: the app can be reached from other machines. Start it with --allow-start and open the"
    " address that it prints."
)
_ALLOWED = "may-start"


def may_start() -> bool:
    """Whether this session may start processes; a token in the address is remembered for the session."""
    mode = os.environ.get(STARTING, "yes")
    if mode != "token":
        return mode == "yes"
    token, given = os.environ.get(TOKEN, ""), st.query_params.get("token", "")
    if token and hmac.compare_digest(given.encode(), token.encode()):
        st.session_state[_ALLOWED] = token
    return bool(token) and st.session_state.get(_ALLOWED) == token


def folders() -> list[Path]:
    """Below which files may be read: the runs, the working directory, and what `--files` names."""
    more = [Path(name).expanduser() for name in json.loads(os.environ.get(FOLDERS, "[]"))]
    return [path.resolve() for path in (*given_paths(), Path.cwd(), *more)]


def readable(path: Path, among: Iterable[Path] | None = None) -> bool:
    """Whether the path, links followed, lies below one of the folders."""
    place = path.expanduser().resolve()
    return any(place.is_relative_to(folder) for folder in (folders() if among is None else among))


def check_readable(path: Path) -> None:
    """Raises DriftscopeError for a path outside the folders."""
    if not readable(path):
        raise DriftscopeError(
            f"{path} lies outside the folders that this app may read ({', '.join(map(str, folders()))}): start it with --files"
            f" {path.expanduser().resolve().parent}"
        )
