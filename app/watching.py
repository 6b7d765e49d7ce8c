"""A measurement that runs: how far it is, what it says, and how to stop it or go on."""

from __future__ import annotations

import time

import streamlit as st

from driftscope.app import jobs, rights
from driftscope.app.cards import escaped
from driftscope.app.jobs import Job
from driftscope.app.shell import entries, messages
from driftscope.findings.words import counted

_EVERY = "2s"
_SHOWN = 14
_SHORT = 90


def watch(job: Job) -> None:
    """Progress that renews itself while the job runs."""
    st.fragment(_state, run_every=_EVERY if job.alive else None)(job, job.alive)


def _state(job: Job, was_alive: bool) -> None:
    with messages("progress"):
        _shown(job, was_alive)


def _shown(job: Job, was_alive: bool) -> None:
    st.code(job.command, language="bash", wrap_lines=True)
    if job.alive:
        _running(job)
    else:
        _over(job)
        if was_alive:
            # The rest of the page does not know yet.
            st.rerun()
    lines = job.lines()
    if lines:
        with st.expander("What it says", expanded=job.alive or not job.whole):
            st.code("\n".join(lines[-_SHOWN:]), language=None, wrap_lines=True)


def _running(job: Job) -> None:
    found = jobs.progress(job)
    seconds = time.time() - job.started
    if found is None:
        st.progress(0.0, f"{_stage(job)}, {seconds:.0f} s")
    else:
        st.progress(found.share, f"{found.stage}: {found.done} of {found.total}, {seconds:.0f} s in all")
    if job.stopping:
        st.caption("Stopping; what is measured is kept.")
    elif rights.may_start() and st.button("Stop", icon=":material/stop:", key=f"stop-{job.folder}"):
        jobs.stop(job)
        st.rerun(scope="fragment")


def _stage(job: Job) -> str:
    """What it does before it counts: its last line, else that it starts."""
    return escaped(job.lines()[-1][:_SHORT]) if job.lines() else "starting"


def _there(job: Job) -> str:
    """What a run holds that did not come to its end."""
    held = {probe: count for probe, count in jobs.shards(job.folder).items() if count}
    if not held:
        return "Nothing was measured yet."
    parts = ", ".join(f"{probe} of {counted(count, 'prompt')}" for probe, count in held.items())
    return f"Measured and kept: {parts}."


def _over(job: Job) -> None:
    if job.whole:
        st.success(escaped(f"Done. {job.error()}".strip()), icon=":material/check:")
    elif job.stopping:
        st.info(f"Stopped. {escaped(_there(job))}", icon=":material/pause:")
    else:
        told = job.error() or f"It ended with exit code {job.code}."
        st.error(escaped(f"{told} {_there(job)}".strip()), icon=":material/error:")
    is_run = (job.folder / "run.json").is_file()
    with st.container(horizontal=True, vertical_alignment="center"):
        if (
            not job.whole
            and is_run
            and rights.may_start()
            and st.button("Go on", icon=":material/play_arrow:", key=f"resume-{job.folder}")
        ):
            jobs.resume(job)
            st.rerun()
        name = next((entry.id for entry in entries() if entry.folder == job.folder), None) if is_run else None
        if name is not None:
            st.page_link(
                "views/overview.py", label="Open the run", icon=":material/open_in_new:", query_params={"run": name}
            )
