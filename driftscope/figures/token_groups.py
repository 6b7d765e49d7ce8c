"""Kinds of tokens and places in an answer, by which acceptance is told."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from driftscope.runs.prompt_sums import prompt_codes

TYPES = ("first", "special", "code", "digit", "punctuation", "whitespace", "word")
"""The first that holds: the first token that is drafted (the prefill gives the one before it), a special or template token,
inside a fenced block of code, digits, no letter or digit at all, nothing but white space, and all else."""
PLACES = ("1", "2-8", "9-32", "33-64", "65-128", "129 on")
"""Of a token in the answer, counted from the first that is drafted."""
_ENDS = (1, 8, 32, 64, 128)
_SPECIAL = re.compile(
    r"<\|[^<>|]+\|>|<[\uff5c|][^<>]+[\uff5c|]>|</?s>|<(?:bos|eos|pad|unk|start_of_turn|end_of_turn)>|\[/?INST\]"
)
_FENCE = "```"


def token_types(pieces: Sequence[str], prompt_length: int) -> list[str]:
    """Of every token of a text, by its piece; only those of the answer, from `prompt_length` on, can be code or first.

    A fence may be in one token or in several; its own tokens count as code.
    """
    found = []
    inside, answer = False, ""
    for place, piece in enumerate(pieces):
        was, held = inside, answer.count(_FENCE)
        if place >= prompt_length:
            answer += piece
            inside = answer.count(_FENCE) % 2 == 1
        fenced = was or inside or answer.count(_FENCE) > held
        found.append("first" if place == prompt_length + 1 else _type(piece, fenced))
    return found


def _type(piece: str, fenced: bool) -> str:
    plain = piece.strip()
    if _SPECIAL.fullmatch(plain):
        return "special"
    if fenced:
        return "code"
    if not plain:
        return "whitespace"
    if plain.isdigit():
        return "digit"
    return "word" if any(char.isalnum() for char in plain) else "punctuation"


def places(offset: NDArray[np.int64]) -> NDArray[np.int64]:
    """Place among PLACES of tokens that lie `offset` behind the first that is drafted."""
    return np.searchsorted(np.asarray(_ENDS), offset + 1).astype(np.int64)


class TextTypes:
    """Token types of every text of a run, looked up by prompt and position."""

    def __init__(self, tokens: pd.DataFrame, lengths: Mapping[str, int]) -> None:
        rows = tokens[tokens["position"].notna()]
        self._types: dict[str, NDArray[np.int64]] = {}
        if rows.empty:
            return
        code, names = prompt_codes(rows["prompt"])
        position = rows["position"].to_numpy(np.int64)
        piece = rows["piece"].astype(str).to_numpy()
        for number, name in enumerate(names):
            own = code == number
            order = np.argsort(position[own], kind="stable")
            if name in lengths and (position[own][order] == np.arange(int(own.sum()))).all():
                types = token_types(piece[own][order].tolist(), lengths[name])
                self._types[name] = np.array([TYPES.index(kind) for kind in types])

    def __bool__(self) -> bool:
        return bool(self._types)

    def at(self, prompts: Sequence[str], prompt: NDArray[np.int64], position: NDArray[np.int64]) -> NDArray[np.int64]:
        """Place among TYPES of the tokens at `position`, each of the prompt `prompts[prompt]`; -1 where the run does not hold
        it."""
        found = np.full(len(position), -1, dtype=np.int64)
        for number, name in enumerate(prompts):
            types = self._types.get(name)
            if types is not None:
                own = (prompt == number) & (position < len(types))
                found[own] = types[position[own]]
        return found
