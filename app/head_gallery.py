"""All heads at a glance: a thumbnail of step x part for each, which a click selects; and where a head moved most."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import streamlit as st
from streamlit.components.v2 import component

from driftscope.app import links
from driftscope.runs.summary import CLEAN
from driftscope.show import frames
from driftscope.show.charts.theme import BUCKET_NAMES
from driftscope.show.frames import Runs
from driftscope.stats.drift import PRACTICAL_MASS

PARTS = ("sink", "prompt", "committed", "self_generated")
MOST = 36
"""Heads that are shown; the rest move less than these."""
_KEY = "head-gallery"
_CSS = """
.heads { display: flex; flex-wrap: wrap; gap: .6rem; }
.heads button { font: inherit; font-size: .8rem; color: inherit; background: none; border: 1px solid rgba(128,128,128,.4);
  border-radius: 6px; padding: .35rem .45rem; cursor: pointer; text-align: left; }
.heads button:hover, .heads button:focus { border-color: currentColor; }
.heads button[aria-pressed=true] { outline: 2px solid currentColor; }
.heads svg { display: block; margin: .25rem 0; }
.heads .moved { opacity: .75; }
"""
# Words are set as text: nothing of a run can become markup.
_JS = """
const make = (name, of) => Object.entries(of).reduce((part, [key, value]) => (part.setAttribute(key, value), part),
  document.createElementNS("http://www.w3.org/2000/svg", name));
export default function ({ parentElement, data, setTriggerValue }) {
  const box = parentElement.querySelector(".heads"), wide = 15, high = 11;
  box.replaceChildren(...data.heads.map((head) => {
    const button = document.createElement("button");
    const svg = make("svg", { width: wide * head.cells[0].length, height: high * head.cells.length });
    button.dataset.head = head.name;
    button.setAttribute("aria-pressed", head.picked);
    head.cells.forEach((row, y) => row.forEach((cell, x) => {
      const rect = make("rect", { x: x * wide, y: y * high, width: wide - 1, height: high - 1 });
      rect.setAttribute("fill", cell.colour);
      rect.setAttribute("fill-opacity", cell.tone);
      const title = make("title", {});
      title.textContent = cell.title;
      rect.append(title);
      svg.append(rect);
    }));
    const [name, moved] = [0, 1].map(() => document.createElement("div"));
    name.textContent = head.label;
    moved.textContent = head.moved;
    moved.className = "moved";
    button.append(name, svg, moved);
    button.onclick = () => setTriggerValue("head", head.name);
    return button;
  }));
}
"""
_COLOURS = ("#D55E00", "#0072B2", "#8a929c")
"""More, less, nothing measured."""
_gallery = component("driftscope_heads", html='<div class="heads"></div>', css=_CSS, js=_JS)


def excess(runs: Runs, feed: str) -> pd.DataFrame:
    """Excess by `layer`, `head`, `bucket` and step of the (only) run, of the parts that a thumbnail shows."""
    found = frames.head_masses(runs, kinds=("excess",), buckets=PARTS, feed=feed, intervals=False)
    return found[["layer", "head", "bucket", "step", "mean"]] if len(found) else found


def by_prompt(runs: Runs, layer: int, head: int, bucket: str, feed: str) -> pd.DataFrame:
    """Where one head moved most: per `prompt` the excess of a part, a mean over its anchors, at the `step` at which it
    is largest, largest first."""
    rows = runs[0].table("heads", probe=CLEAN)
    keep = (rows["variant"] == CLEAN) & (rows["feed"] == feed) & (rows["anchors"] > 0)
    rows = rows[keep & (rows["layer"] == layer) & (rows["head"] == head)]
    if rows.empty or f"excess/{bucket}" not in rows:
        return pd.DataFrame(columns=["prompt", "step", "moved"])
    moved = rows[f"excess/{bucket}"].astype(np.float64) / rows["anchors"].astype(np.float64)
    found = pd.DataFrame(
        {"prompt": rows["prompt"].astype(str), "step": rows["step"].astype(int), "moved": moved}
    ).dropna()
    largest = found.loc[found["moved"].abs().groupby(found["prompt"]).idxmax()]
    return largest.sort_values("moved", key=abs, ascending=False).reset_index(drop=True)


def direction(moved: float) -> str:
    """Heads are sorted by size: which way it goes must be said."""
    return f"gains {moved:.3f}" if moved >= 0 else f"loses {-moved:.3f}"


def thumbnails(masses: pd.DataFrame, ranked: pd.DataFrame, picked: str) -> list[dict[str, Any]]:
    """One entry per head in the order of `ranked`: `name`, `label`, `moved`, `picked`, and `cells` by part and step."""
    if masses.empty:
        return []
    # One scale for all, so that thumbnails compare; what is below the practical size must not look strong.
    reach = max(float(masses["mean"].abs().max()), PRACTICAL_MASS)
    held = masses.pivot_table(index=["layer", "head", "bucket"], columns="step", values="mean", dropna=False)
    parts = [part for part in PARTS if part in set(masses["bucket"])]
    found = []
    for layer, head, moved in ranked[["layer", "head", "mean"]].head(MOST).itertuples(index=False):
        cells = [
            [_cell(part, int(step), held.at[(layer, head, part), step], reach) for step in held.columns]
            for part in parts
            if (layer, head, part) in held.index
        ]
        name = f"{layer}.{head}"
        told = {"label": f"layer {layer}, head {head}", "moved": direction(moved), "picked": name == picked}
        if cells:
            found.append({"name": name, **told, "cells": cells})
    return found


def show(masses: pd.DataFrame, ranked: pd.DataFrame, picked: str) -> None:
    """The gallery; the head that is looked at is framed."""
    found = thumbnails(masses, ranked, picked)
    if not found:
        return
    rows = ", ".join(BUCKET_NAMES[part] for part in PARTS if part in set(masses["bucket"]))
    with st.container(border=True, key="gallery-card"):
        _gallery(key=_KEY, data={"heads": found}, on_head_change=_picked)
        shown = f" The {len(found)} of {len(ranked)} heads that moved most." if len(found) < len(ranked) else ""
        st.caption(
            f"One picture a head, steps from left to right; rows from the top: {rows}. Orange: more attention than without"
            f" drafting, blue: less; full colour is the largest of all heads. A click selects.{shown}"
        )


def lead(found: pd.DataFrame, run: str, name: str, bucket: str, most: int = 6) -> None:
    """From a head to the prompts in which it moved most, each a link to its text at that step."""
    if found.empty:
        return
    layer, head = name.split(".")
    with st.container(border=True, key="head-prompts"):
        st.markdown(
            f"**Where layer {layer}, head {head} moved most** ({BUCKET_NAMES[bucket]}, mean over a prompt's positions)"
        )
        with st.container(horizontal=True, gap="medium"):
            for row in found.head(most).itertuples(index=False):
                st.page_link(
                    "views/tokens.py",
                    label=f"{row.prompt}, step {row.step}: {direction(float(row.moved))}",
                    icon=":material/notes:",
                    query_params={"run": run, "prompt": str(row.prompt), "step": str(row.step)},
                )


def _cell(part: str, step: int, value: float, reach: float) -> dict[str, Any]:
    if not np.isfinite(value):
        return {"colour": _COLOURS[2], "tone": 0.15, "title": f"{BUCKET_NAMES[part]}, step {step}: not measured"}
    told = f"{BUCKET_NAMES[part]}, step {step}: {direction(float(value))}"
    return {
        "colour": _COLOURS[int(value < 0)],
        "tone": round(0.06 + 0.94 * abs(float(value)) / reach, 3),
        "title": told,
    }


def _picked() -> None:
    """A click: that head is selected, without a new page."""
    clicked = getattr(st.session_state.get(_KEY), "head", None)
    if isinstance(clicked, str):
        links.put("head", clicked)
