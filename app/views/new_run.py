"""Measure a checkpoint from here: as a process of its own, which can be stopped and gone on with."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import streamlit as st

from driftscope.app import jobs, pace, rights, shell
from driftscope.app.cards import escaped
from driftscope.app.checks import check_checkpoint, check_out, check_prompts, check_target
from driftscope.app.library import given_paths
from driftscope.app.shell import plain
from driftscope.app.watching import watch
from driftscope.errors import DriftscopeError
from driftscope.probes import DEFAULT, available
from driftscope.runs.naming import fresh_run

T = TypeVar("T")


@dataclass(frozen=True)
class Wish:
    """What is asked for."""

    checkpoint: str
    target: str
    probes: Sequence[str]
    depth: int
    max_new_tokens: int
    prompts: str
    anchors: int
    out: str

    def arguments(self) -> list[str]:
        """The command line behind `driftscope`; names of files cannot be taken for options."""
        words = ["probe", "--probes", ",".join(self.probes), "--depth", str(self.depth)]
        words += ["--max-new-tokens", str(self.max_new_tokens), f"--out={self.out}"]
        if self.target:
            words.append(f"--target={self.target}")
        if self.prompts:
            words.append(f"--prompts={self.prompts}")
        if self.anchors:
            words += ["--anchors", str(self.anchors)]
        return [*words, "--", self.checkpoint]


def page() -> None:
    """The page."""
    st.title("New run", anchor=False)
    wish = _form()
    if wish is not None:
        st.code(shlex.join(["driftscope", *wish.arguments()]), language="bash", wrap_lines=True)
    else:
        st.caption("Name a checkpoint, a run folder and at least one probe.")
    may = rights.may_start()
    if not may:
        st.info(rights.WHY_NOT, icon=":material/lock:")
    ready = wish is not None and may
    if st.button("Measure", icon=":material/play_arrow:", type="primary", disabled=not ready) and ready:
        assert wish is not None
        try:
            check_out(wish.out)
            jobs.start(wish.arguments(), Path(wish.out))
        except DriftscopeError as error:
            st.error(plain(error), icon=":material/error:")
    for job in jobs.all_jobs():
        with st.container(border=True):
            watch(job)


def _form() -> Wish | None:
    """The fields, each checked as it is filled; None while something is missing or wrong."""
    known = available()
    left, right = st.columns(2, gap="medium")
    with left:
        checkpoint = st.text_input(
            "Checkpoint", placeholder="a folder, a weight file or a Hub id", key="new-checkpoint"
        ).strip()
        sound = not checkpoint or _checked(check_checkpoint, checkpoint) is not None
        target = st.text_input(
            "Target", placeholder="a folder or name; what the config names, if empty", key="new-target"
        ).strip()
        sound = (not target or _checked(check_target, target) is not None) and sound
        prompts = st.text_input(
            "Prompts", placeholder="JSONL, text or a chat file; those that are shipped, if empty", key="new-prompts"
        ).strip()
        held = _checked(check_prompts, prompts)
        sound = held is not None and sound
        root = next((path for path in given_paths() if not (path / "run.json").is_file()), Path("runs"))
        suggested = str(fresh_run(checkpoint, root)) if checkpoint else ""
        out = st.text_input("Run folder", value=suggested, placeholder="a new one", key=f"new-out-{checkpoint}").strip()
        sound = (not out or _checked(check_out, out) is not None) and sound
    with right:
        probes = st.multiselect(
            "Probes",
            list(known),
            [name for name in known if name in DEFAULT],
            key="new-probes",
            help="what to ask; see below for costs",
        )
        with st.container(horizontal=True):
            depth = int(st.number_input("Steps of a chain", 1, 64, 8, key="new-depth"))
            tokens = int(st.number_input("New tokens", 8, 4096, 128, key="new-tokens", help="length of a continuation"))
            anchors = int(st.number_input("Anchors (0: all)", 0, 4096, 0, key="new-anchors"))
        st.caption(escaped(pace.expected_new(shell.entries(), probes, depth, tokens, held[0] if held else 0)))
        st.caption("  \n".join(f"**{name}**: {known[name].question}" for name in probes))
    if not checkpoint or not probes or not out or not sound:
        return None
    return Wish(checkpoint, target, probes, depth, tokens, prompts, anchors, out)


def _checked(check: Callable[[str], T], text: str) -> T | None:
    """What a check says, below its field; None for what is wrong."""
    try:
        found = check(text)
    except DriftscopeError as error:
        st.error(plain(error), icon=":material/error:")
        return None
    st.caption(f":material/check: {escaped(found[1] if isinstance(found, tuple) else str(found))}")
    return found


if __name__ == "__main__":
    page()
