"""The whole text as a ribbon: how far a chain gets from every position, why it ends there, and a click that opens it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
import streamlit as st
from streamlit.components.v2 import component

from driftscope.app import links
from driftscope.app.reading import Reading, accepted_lengths
from driftscope.app.token_html import share
from driftscope.show.cost import WHY

_KEY = "ribbon"
_DRIFT = ("state", "pattern", "values", "several", "block")
_NEWLINE = "\u23ce\n"
_CSS = """
.ribbon { white-space: pre-wrap; line-height: 1.85; font-size: .92rem; max-height: 16rem; overflow-y: auto; }
.ribbon span { border-radius: 2px; padding: .12em 0; }
.ribbon .start { cursor: pointer; }
.ribbon .start:hover, .ribbon .start:focus { outline: 1px solid currentColor; }
.ribbon .given { opacity: .6; }
.ribbon .drift { border-bottom: 3px solid #D55E00; }
.ribbon .none { border-bottom: 3px dotted #8a929c; }
.ribbon .picked { outline: 2px solid currentColor; }
"""
# Texts are set as text: what a token says cannot become markup.
_JS = """
export default function ({ parentElement, data, setTriggerValue }) {
  const box = parentElement.querySelector(".ribbon");
  box.replaceChildren(...data.tokens.map((token) => {
    const part = document.createElement("span");
    part.textContent = token.text;
    part.title = token.title;
    part.className = token.kind;
    if (token.tone > 0) part.style.background = `rgba(0, 114, 178, ${token.tone})`;
    if (token.anchor !== null) {
      part.tabIndex = 0;
      part.dataset.anchor = token.anchor;
      part.onclick = () => setTriggerValue("anchor", token.anchor);
      part.onkeydown = (event) => { if (event.key === "Enter") part.onclick(); };
    }
    return part;
  }));
}
"""
_ribbon = component("driftscope_ribbon", html='<div class="ribbon"></div>', css=_CSS, js=_JS)


def show(found: Reading, anchor: int) -> None:
    """The ribbon; the chain that is looked at is framed."""
    _ribbon(key=_KEY, data={"tokens": tokens(found, anchor)}, on_anchor_change=_picked)


def tokens(found: Reading, anchor: int) -> list[dict[str, Any]]:
    """One entry per token of the text: `text`, `title`, `kind`, `tone` (0 to 1) and the `anchor` that a click opens."""
    lengths = accepted_lengths(found.chains)
    starts = {int(place) + 1: int(place) for place in found.anchors}
    depth = int(found.chains["step"].max())
    ends = {int(row["anchor"]): row for row in found.ends.to_dict("records")}
    rows = {int(number): part.sort_values("step") for number, part in found.chains.groupby("anchor")}
    entries = []
    for position, piece in enumerate(found.text):
        start = starts.get(position)
        text = piece.replace("\n", _NEWLINE).replace("\t", "\u21e5\t")
        entry = {"text": text, "title": f"position {position}", "kind": "given", "tone": 0.0, "anchor": None}
        if start is not None:
            accepted = lengths.get(start)
            reason = _reason(rows[start], ends.get(start))
            kinds = ["start", *(["drift"] if reason in _DRIFT else []), *(["none"] if accepted is None else [])]
            entry |= {
                "title": f"position {position}: {_told(found, rows[start], accepted, depth, reason, ends.get(start))}",
                "kind": " ".join([*kinds, *(["picked"] if start == anchor else [])]),
                "tone": 0.0 if not accepted else round(0.12 + 0.5 * accepted / depth, 3),
                "anchor": start,
            }
        elif position >= found.prompt_length:
            entry["kind"] = ""
        entries.append(entry)
    return entries


def legend(found: Reading) -> str:
    """What colours and lines mean, in a sentence."""
    why = (
        "an orange line: the chain ends through drift"
        if len(found.ends)
        else "why chains end was not measured (probe cost)"
    )
    return (
        "The whole text; the bluer a token, the more drafted tokens behind it are accepted. Faint: the prompt;"
        f" {why}. Hover for what was drafted there, click to open that chain below."
    )


def _reason(chain: pd.DataFrame, end: Mapping[Any, Any] | None) -> str | None:
    """Why the chain ends: as the probe `cost` says, else what the chain alone tells."""
    if end is not None:
        return None if pd.isna(end["reason"]) else str(end["reason"])
    wrong = chain[chain["accepted"].eq(False)]
    return "vocabulary" if len(wrong) and pd.isna(wrong["rank"].iloc[0]) else None


def _told(
    found: Reading,
    chain: pd.DataFrame,
    accepted: int | None,
    depth: int,
    reason: str | None,
    end: Mapping[Any, Any] | None,
) -> str:
    if accepted is None:
        return "acceptance was not measured"
    if accepted == depth:
        return f"all {depth} drafted tokens accepted"
    row = chain.iloc[accepted]
    why = WHY[reason] if reason else "why was not measured"
    target = "" if end is None or pd.isna(end["target_prob"]) else f"; the target gives it {share(end['target_prob'])}"
    return (
        f"{accepted} of {depth} accepted; step {accepted + 1} drafts {found.piece(row['drafted'])!r} (the drafter gives it"
        f" {share(row['top_prob'])}), the target writes {found.piece(row['text'])!r} (the drafter gives it"
        f" {share(row['prob'])}{target}); {why}"
    )


def _picked() -> None:
    """A click: that chain is opened, without a new page."""
    clicked = getattr(st.session_state.get(_KEY), "anchor", None)
    if isinstance(clicked, int) and not isinstance(clicked, bool):
        links.put("anchor", str(clicked))
