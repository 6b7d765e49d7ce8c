"""What to do where a run lacks what a page shows."""

from __future__ import annotations

import shlex

import streamlit as st

from driftscope.app.library import Entry


def not_measured(entry: Entry, probe: str, what: str) -> None:
    """A note with the command that measures it."""
    st.info(f"{what} This goes on with the run:", icon=":material/info:")
    info = entry.info
    assert info is not None
    words = ["driftscope", "probe", info.checkpoint.path, "--target", info.target.name, "--probes", probe]
    words += ["-o", str(entry.folder), "--resume"]
    for name, flag in (("max_new_tokens", "--max-new-tokens"), ("depth", "--depth"), ("horizon", "--horizon")):
        if name in info.settings:
            words += [flag, str(info.settings[name])]
    st.code(shlex.join(words), language="bash", wrap_lines=True)
