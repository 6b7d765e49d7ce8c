"""What was probed: layout, switches and where their values came from, the files, the audit, provenance."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import streamlit as st

from driftscope.app import jobs, look, rights
from driftscope.app.asking import local_target, switches
from driftscope.app.cards import escaped
from driftscope.app.digest import cache_folder
from driftscope.app.library import Entry
from driftscope.app.shell import current
from driftscope.app.watching import watch
from driftscope.errors import RunError
from driftscope.files.json import json_object
from driftscope.findings.words import counted
from driftscope.runs.schema import RunInfo
from driftscope.show.tables import NOT_MEASURED, interval_text

_SECONDS = 300
_TALL = 440
_ENGINES = {"vllm": "vLLM", "sglang": "SGLang", "tensorrt_llm": "TensorRT-LLM"}
_CONTROLS = {
    "name": "control",
    "loss": "loss (nats)",
    "agreement": "agreement (share)",
    "margin_loss": "setting is better by (nats)",
    "margin_agreement": "setting is better by (share)",
    "p": "p",
    "beaten": "told apart",
}
_OUTCOMES = {"holds": st.success, "misconfigured": st.error, "cannot tell": st.warning}


def page() -> None:
    """The page."""
    entry = current()
    info = entry.info
    assert info is not None
    st.title("Checkpoint", anchor=False)
    for warning in info.checkpoint.warnings:
        st.warning(escaped(warning), icon=":material/warning:")
    st.subheader("Switches, and where each value came from", anchor=False)
    with st.container(border=True, height=_TALL, key="switches"):
        look.facts(_switches(info), ("switch", "value", "from", "detail"))
    with st.container(border=True):
        _audit(entry, info)
    with st.container(border=True):
        _files(info)
    left, right = st.columns(2, gap="medium")
    with left:
        st.subheader("What it is", anchor=False)
        look.facts((name, _text(value)) for name, value in _about(info).items())
    with right:
        st.subheader("Provenance", anchor=False)
        look.facts((name, _text(value)) for name, value in _flat(info.provenance).items())


def _switches(info: RunInfo) -> Iterator[tuple[str, str, str, str]]:
    """Name, value, and where the value came from."""
    for name, value in info.checkpoint.switches.items():
        origin = info.checkpoint.origins.get(name)
        told: Mapping[str, Any] = origin if isinstance(origin, Mapping) else {}
        yield name, _text(value), str(told.get("source", NOT_MEASURED)), str(told.get("detail", ""))


def _about(info: RunInfo) -> dict[str, Any]:
    return {
        "checkpoint": info.checkpoint.path,
        "layout": info.checkpoint.layout,
        "sha256": info.checkpoint.sha256,
        "target": info.target.name,
        "target layers": info.target.layers,
        "target width": info.target.hidden_size,
        "sink positions": info.target.sinks or "none",
        **{f"setting: {_spaced(name)}": value for name, value in info.settings.items() if value is not None},
    }


def _flat(values: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in values.items():
        words = f"{before}{_spaced(name)}"
        found |= _flat(value, f"{words}: ") if isinstance(value, Mapping) else {words: value}
    return found


def _spaced(name: str) -> str:
    return name.replace("_", " ")


def _files(info: RunInfo) -> None:
    st.subheader("Static checks of the files", anchor=False)
    path = Path(info.checkpoint.path).expanduser()
    if not path.exists():
        st.caption(f"{escaped(str(path))} is not on this machine (seen from {escaped(str(Path.cwd()))}).")
        return
    if not rights.readable(path):
        st.caption(f"{escaped(str(path))} lies outside the folders that this app may read: start it with --files.")
        return
    stamp = _stamp(path)
    if not st.session_state.get(f"inspect-{stamp}"):
        st.button("Read the files again", icon=":material/fact_check:", on_click=_wish, args=(f"inspect-{stamp}",))
        st.caption("Tensors, norms, draft vocabulary, and what vLLM, SGLang and TensorRT-LLM would make of the config.")
        return
    found = _inspected(str(path), stamp, (*local_target(info), *switches(info)))
    if "failed" in found:
        st.error(escaped(found["failed"]), icon=":material/error:")
        return
    _inspection(found)


def _inspection(found: Mapping[str, Any]) -> None:
    for problem in found["problems"]:
        st.error(escaped(problem), icon=":material/error:")
    for warning in found["warnings"]:
        st.warning(escaped(warning), icon=":material/warning:")
    counts = Counter(tensor["status"] for tensor in found["tensors"])
    told = ", ".join(f"{count} {status}" for status, count in counts.items())
    st.markdown(
        f"{found['parameters']:,} parameters in {counted(len(found['files']), 'file')}; tensors: {told}. {escaped(found['reason'])}"
    )
    engines = [
        {
            "switch": reading["switch"],
            "here": reading["here"],
            **{name: reading[key] or "as here" for key, name in _ENGINES.items()},
        }
        for reading in found["engines"]
    ]
    if engines:
        st.markdown("**Engines that read this config otherwise**")
        _frame(pd.DataFrame(engines))
    elif found["config_path"]:
        st.caption("vLLM, SGLang and TensorRT-LLM read this config as it is run here.")
    else:
        st.caption("There is no config for vLLM, SGLang or TensorRT-LLM to read.")
    norms = pd.DataFrame(found["norms"])
    if len(norms):
        with st.expander(f"{len(norms)} norms: all ones is a norm that was never trained, or never loaded"):
            _frame(norms)
    with st.expander(f"{len(found['tensors'])} tensors"):
        tensors = pd.DataFrame(found["tensors"])
        _frame(tensors.assign(shape=[" x ".join(map(str, shape or ())) for shape in tensors["shape"]]))


@st.cache_data(max_entries=32, show_spinner="reading the files")
def _inspected(path: str, stamp: str, options: tuple[str, ...]) -> dict[str, Any]:
    """`driftscope inspect --json` in a process of its own, which takes torch along."""
    try:
        done = subprocess.run(
            [*jobs.program(), "inspect", "--json", *options, "--", path],
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
        found: dict[str, Any] = json.loads(done.stdout)
        return found
    except subprocess.TimeoutExpired:
        return {"failed": f"reading took longer than {_SECONDS} s"}
    except ValueError:
        return {"failed": (done.stderr.strip().splitlines() or ["driftscope inspect said nothing"])[-1]}


def _audit(entry: Entry, info: RunInfo) -> None:
    st.subheader("Audit: is it run as it was trained?", anchor=False)
    options = ["--target", info.target.name, *switches(info)]
    key = hashlib.sha256("\0".join([info.checkpoint.sha256, info.target.fingerprint, *options]).encode()).hexdigest()
    file = cache_folder() / "audits" / f"{key[:32]}.json"
    job = jobs.job_of(file)
    if job is not None and job.alive:
        watch(job)
        return
    found = _read(file) or _read(entry.folder / "audit.json")
    if found is not None:
        _found(found)
    elif job is not None:
        watch(job)
    with st.container(horizontal=True, vertical_alignment="center"):
        words = ["audit", "--json", *options, "--", info.checkpoint.path]
        label = "Audit again" if found else "Run the audit"
        may = rights.may_start() and (
            rights.readable(Path(info.checkpoint.path)) or not Path(info.checkpoint.path).exists()
        )
        if st.button(label, icon=":material/policy:", disabled=not may, help=None if may else rights.WHY_NOT) and may:
            jobs.start(words, file, stdout=file)
            st.rerun()
        st.caption("Every switch against its alternatives, with negative controls; takes minutes.")


def _found(found: Mapping[str, Any]) -> None:
    _OUTCOMES.get(found["outcome"], st.info)(f"**{escaped(found['verdict'])}**")
    for line in found.get("unsettled", ()):
        st.warning(f"**Not settled:** {escaped(line)}", icon=":material/warning:")
    for finding in found["findings"]:
        st.markdown(
            f":red-badge[{escaped(finding['code'])}] **{escaped(finding['title'])}** {escaped(finding['statement'])}"
        )
        for advice in finding.get("try", ()):
            st.markdown(f"- *try:* {escaped(advice)}")
    rows = [
        {
            "switch": row["switch"],
            "declared": row["declared"],
            "alternative": row["alternative"],
            "status": row["status"],
            "loss falls by (nats)": _interval(row["loss_later"]),
            "length rises by (tokens)": _interval(row["length"]),
            "why": row["reason"],
        }
        for row in found["hypotheses"]
        if row["round"] == 1
    ]
    if rows:
        order = {"better": 0, "worse": 1, "indistinguishable": 2, "ruled out": 3}
        _frame(pd.DataFrame(rows).sort_values("status", key=lambda column: column.map(order)), height=280)
    if found.get("prompts"):
        st.caption(
            f"Over {counted(found['prompts'], 'prompt')} and {counted(found['anchors'], 'anchor')}; differences to the declared"
            " setting with 95% intervals over prompts, positive is better, the loss over steps 2 to 4."
        )
    controls = pd.DataFrame(found["controls"])
    if len(controls):
        st.caption("Negative controls, at step 1: what a drafter scores that knows nothing of the text.")
        held = controls[[name for name in _CONTROLS if name in controls]].replace({True: "yes", False: "no"})
        _frame(held.rename(columns=_CONTROLS))
    for hint in found.get("hints", ()):
        st.markdown(f"- {escaped(hint['statement'] if isinstance(hint, Mapping) else str(hint))}")


def _interval(found: Mapping[str, Any] | None) -> str:
    if not found:
        return NOT_MEASURED
    low, high = (float("nan") if found[name] is None else found[name] for name in ("low", "high"))
    return interval_text(found["mean"], low, high, "+.2f")


def _read(file: Path) -> dict[str, Any] | None:
    try:
        found = json_object(file, RunError)
    except (OSError, RunError):
        return None
    return found if "hypotheses" in found else None


def _stamp(path: Path) -> str:
    files = [path] if path.is_file() else sorted(part for part in path.iterdir() if part.is_file())
    return " ".join(f"{file}:{file.stat().st_mtime_ns}:{file.stat().st_size}" for file in files)


def _wish(key: str) -> None:
    st.session_state[key] = True


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return "none" if value is None else str(value)


def _frame(frame: pd.DataFrame, **options: Any) -> None:
    numbers = {str(name): st.column_config.NumberColumn(format="%.3g") for name in frame.select_dtypes("float")}
    st.dataframe(frame, hide_index=True, column_config=numbers, placeholder=NOT_MEASURED, **options)


if __name__ == "__main__":
    page()
