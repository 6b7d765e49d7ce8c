"""The text of a prompt as HTML: one chain inside it, and the keys that one of its steps looks at."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from driftscope.app.reading import Key, Reading
from driftscope.show.charts.theme import BUCKET_COLOURS, BUCKET_NAMES, ThemeName

_STATES = {
    "accepted": ("#0072B2", "✓", "accepted"),
    "rejected": ("#D55E00", "✗", "rejected: the chain ends here"),
    "later": ("#8a929c", "·", "after a rejected token: an engine throws it away"),
    "unknown": ("#8a929c", "?", "not measured: the text is not confirmed as the target's"),
}
"""Colour, sign and meaning of what became of a drafted token."""
SIGNS = {name: sign for name, (_, sign, _) in _STATES.items()}
_BREAKS = {"\n": "⏎\n", "\t": "⇥\t"}
_CHIP = "padding:0 .4em;border-radius:3px"
_START = "outline:2px solid currentColor;outline-offset:1px;border-radius:3px;padding:0 .15em"
_BOX = (
    "display:inline-block;vertical-align:top;margin:.15em .2em;padding:.05em .35em;border-radius:4px;line-height:1.3;"
)
_TEXT = "white-space:pre-wrap;line-height:1.75;font-size:.95rem"


def legend(look: ThemeName) -> str:
    """What the colours say."""
    states = " ".join(
        f'<span style="border-bottom:3px solid {colour};padding:0 .3em">{sign} {about.partition(":")[0]}</span>'
        for name, (colour, sign, about) in _STATES.items()
        if name != "unknown"
    )
    parts = " ".join(
        f'<span style="background:{_tint(BUCKET_COLOURS[name], 0.45)};{_CHIP}">{BUCKET_NAMES[name]}</span>'
        for name in ("sink", "prompt", "committed", "drafted", "current")
    )
    return (
        f'<div style="{_ink(look)};font-size:.85rem;display:flex;gap:.7em;flex-wrap:wrap">drafted token: {states}&ensp; key that'
        f" the step looks at, by part: {parts}</div>"
    )


def text(reading: Reading, anchor: int, step: int, look: ThemeName) -> str:
    """The whole text with one chain inside it.

    A key made from the target's features is marked at the token of its feature, the chain's own rows at their step.
    """
    keys = reading.keys(anchor, step)
    context = {key.position: key for key in keys if not key.own}
    own = {key.step(anchor): key for key in keys if key.own}
    top = max((key.mass for key in keys), default=1.0)
    chain = reading.chain(anchor)
    first, after = anchor + 2, anchor + 2 + len(chain)
    parts = []
    for position, piece in enumerate(reading.text):
        if position == first:
            parts.append(_chain(reading, chain, step, own, top))
        if first <= position < after:
            continue
        if position == reading.prompt_length:
            parts.append('<span title="here the target\'s continuation starts" style="opacity:.6">▸</span>')
        shown = _token(position, piece, context.get(position), top)
        if position == anchor + 1:
            about = "the last token of the target: the chain starts from it"
            shown = f'<span title="{about}" style="{_START}">{shown}</span>'
        parts.append(shown)
    return f'<div style="{_ink(look)};{_TEXT}">{"".join(parts)}</div>'


def states_of(chain: pd.DataFrame) -> list[str]:
    """Per step of a chain: accepted, rejected, later, or unknown where acceptance was not measured."""
    if chain["accepted"].isna().any():
        return ["unknown"] * len(chain)
    accepted = chain["accepted"].tolist()
    return [
        "accepted" if now else "rejected" if before else "later"
        for now, before in zip(accepted, [True, *accepted], strict=False)
    ]


def rank_text(rank: Any, state: str) -> str:
    """The rank of the target's token; behind a rejected token the chain has left the text, and the rank says little."""
    told = "no rank" if pd.isna(rank) else f"rank {int(rank)}"
    return f"{told}, off the path" if state == "later" else told


def visible(piece: str) -> str:
    """A token so that its white space can be seen."""
    marked = "".join({"\n": "⏎", "\t": "⇥"}.get(char, char) for char in piece)
    return marked.replace(" ", "␣", 1) if marked else "∅"


def _chain(reading: Reading, chain: pd.DataFrame, step: int, own: Mapping[int, Key], top: float) -> str:
    boxes = []
    for row, state in zip(chain.to_dict("records"), states_of(chain), strict=True):
        number = int(row["step"])
        boxes.append(_box(reading, row, state, own.get(number), top, number == step))
    return f'<span style="white-space:normal">{"".join(boxes)}</span>'


def _box(reading: Reading, row: Mapping[Any, Any], state: str, key: Key | None, top: float, picked: bool) -> str:
    """One drafted token above the target's."""
    colour, sign, about = _STATES[state]
    drafted, target = reading.piece(row["drafted"]), reading.piece(row["text"])
    rank = rank_text(row["rank"], state)
    told = (
        f"step {row['step']}: drafted {drafted!r} ({share(row['top_prob'])} by the drafter), {about}; the target writes"
        f" {target!r} ({rank}, {share(row['prob'])} by the drafter)"
    )
    style = f"{_BOX}border-bottom:3px solid {colour};"
    if key is not None:
        style += f"background:{_tint(BUCKET_COLOURS[key.bucket], _alpha(key.mass, top))};"
    if picked:
        style += "box-shadow:0 0 0 2px currentColor;"
    mass = f'<span style="font-size:.65rem"> {html.escape(percent(key.mass))}</span>' if key is not None else ""
    return (
        f'<span title="{html.escape(told, quote=True)}" style="{style}">'
        f'<span style="font-weight:600">{sign} {html.escape(visible(drafted))}</span>{mass}'
        f'<br><span style="font-size:.72rem;opacity:.8">{html.escape(visible(target))} · {rank}</span></span>'
    )


def _token(position: int, piece: str, key: Key | None, top: float) -> str:
    shown = html.escape("".join(_BREAKS.get(char, char) for char in piece))
    if key is None:
        return f'<span title="position {position}">{shown}</span>'
    about = f"position {position}, {BUCKET_NAMES[key.bucket]}: {key.mass:.1%} of this step's attention"
    style = f"background:{_tint(BUCKET_COLOURS[key.bucket], _alpha(key.mass, top))};border-radius:3px;padding:.1em 0"
    # A mark does not run over into the line below.
    text = shown.rstrip("\n")
    mass = f'<sub style="font-size:.62rem">{html.escape(percent(key.mass))}</sub>'
    return f'<span title="{html.escape(about, quote=True)}" style="{style}">{text}{mass}</span>{shown[len(text) :]}'


def percent(mass: float) -> str:
    """A share in whole percent; what is there but too little for one does not become 0."""
    return "<1%" if 0 < mass < 0.005 else f"{mass:.0%}"


def share(value: Any) -> str:
    """A probability."""
    return "not recorded" if pd.isna(value) else f"{value:.1%}"


def _alpha(mass: float, top: float) -> float:
    return 0.15 + 0.45 * math.sqrt(mass / top) if top > 0 else 0.15


def _tint(colour: str, alpha: float) -> str:
    red, green, blue = (int(colour[place : place + 2], 16) for place in (1, 3, 5))
    return f"rgba({red},{green},{blue},{alpha:.2f})"


def _ink(look: ThemeName) -> str:
    return f"color:{'#e8eaed' if look == 'dark' else '#1b1f24'}"
