"""Files of prompts that lie."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hostile.registry import Random, maker
from hostile.spoil import changed_json, hostile_json, linked, spoilt
from hostile.stock import Stock

_CHAT = [
    {"role": "system", "content": "w1"},
    {"role": "user", "content": "w2 w3"},
    {"role": "assistant", "content": "w4"},
]
_ROWS: list[dict[str, Any]] = [
    {"messages": _CHAT, "id": "a", "category": "chat"},
    {"conversations": [{"from": "human", "value": "w5 w6"}]},
    {"prompt": "w7 w8 w9"},
    {"text": "w10 w11 w12"},
    {"messages": [{"role": "user", "content": [{"type": "text", "text": "w13 w14"}]}]},
]


def written(file: Path, rows: Any) -> Path:
    """In the form that the suffix asks for."""
    if file.suffix == ".json":
        file.write_text(json.dumps(rows))
    elif file.suffix == ".jsonl" and isinstance(rows, list):
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        file.write_text("\n\n".join(map(str, rows if isinstance(rows, list) else [rows])), errors="surrogatepass")
    return file


def sound(folder: Path) -> list[Path]:
    """A file of each form."""
    return [written(folder / f"prompts{suffix}", _ROWS) for suffix in (".jsonl", ".json", ".txt")]


@maker("prompts", 4)
def prompts_changed(folder: Path, draw: Random, stock: Stock) -> Path:
    """Other keys, types and texts than the ones that are known."""
    rows: Any = json.loads(json.dumps(_ROWS))
    for _ in range(draw.choice((1, 2, 4))):
        rows = changed_json(rows, draw)
    return written(folder / draw.choice(("prompts.jsonl", "prompts.json")), rows)


@maker("prompts", 2)
def prompts_spoilt(folder: Path, draw: Random, stock: Stock) -> Path:
    file = written(folder / draw.choice(("prompts.jsonl", "prompts.json", "prompts.txt")), _ROWS)
    file.write_bytes(spoilt(file.read_bytes(), draw))
    return file


@maker("prompts")
def prompts_hostile(folder: Path, draw: Random, stock: Stock) -> Path:
    file = folder / draw.choice(("prompts.jsonl", "prompts.json", "prompts.txt"))
    if draw.random() < 0.3:
        linked(file, draw)
    else:
        file.write_bytes(hostile_json(draw))
    return file
