"""Measure a checkpoint from here: as a process of its own, which can be stopped and gone on with."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import streamlit as st

from driftscope.app import jobs
from driftscope.app.library import given_paths
from driftscope.app.shell import plain
from driftscope.app.watching import watch
from driftscope.errors import RunError
from driftscope.probes import DEFAULT, available
from driftscope.runs.naming import fresh_run


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
    if st.button("Measure", icon=":material/play_arrow:", type="primary", disabled=wish is None) and wish is not None:
        try:
            out = Path(wish.out)
            if out.exists() and (not out.is_dir() or any(out.iterdir())):
                raise RunError(f"{out} exists: choose another folder, or go on with that run below")
            jobs.start(wish.arguments(), out)
        except RunError as error:
            st.error(plain(error), icon=":material/error:")
    for job in jobs.all_jobs():
        with st.container(border=True):
            watch(job)


def _form() -> Wish | None:
    """The fields; None while something is missing."""
    known = available()
    left, right = st.columns(2, gap="medium")
    with left:
        checkpoint = st.text_input(
            "Checkpoint", placeholder="a folder, a weight file or a Hub id", key="new-checkpoint"
        ).strip()
        target = st.text_input(
            "Target", placeholder="a folder or name; what the config names, if empty", key="new-target"
        ).strip()
        prompts = st.text_input(
            "Prompts", placeholder="JSONL, text or a chat file; the 48 that are shipped, if empty", key="new-prompts"
        )
        root = next((path for path in given_paths() if not (path / "run.json").is_file()), Path("runs"))
        suggested = str(fresh_run(checkpoint, root)) if checkpoint else ""
        out = st.text_input("Run folder", value=suggested, placeholder="a new one", key=f"new-out-{checkpoint}").strip()
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
        cost = _cost(probes, depth)
        st.caption(
            f"Cost: {cost:g} chain passes, where 1 is the clean chains of {depth} steps; the target runs once per prompt."
        )
        st.caption("  \n".join(f"**{name}**: {known[name].question}" for name in probes))
    if not checkpoint or not probes or not out:
        return None
    return Wish(checkpoint, target, probes, depth, tokens, prompts.strip(), anchors, out)


def _cost(names: Sequence[str], depth: int) -> float:
    """Probes that share a shard are measured once."""
    known = available()
    return sum({known[name].shard: known[name].cost(depth) for name in names}.values())


if __name__ == "__main__":
    page()
