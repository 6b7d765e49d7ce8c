"""Fenced code of Markdown pages, and code cells of notebooks, with the lines at which they stand."""

from __future__ import annotations

import json
import re
import shlex
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_FENCE = re.compile(r"^( *)(`{3,})([\w-]*)")
_SEPARATORS = {"|", "||", "&&", ";", ">", ">>", "2>"}


@dataclass(frozen=True)
class Block:
    """Code of one language; `line` is its first line in the page, from 1."""

    language: str
    line: int
    code: str


def blocks(text: str) -> list[Block]:
    """The fenced blocks of a page, indented ones included."""
    found: list[Block] = []
    lines = text.splitlines()
    number = 0
    while number < len(lines):
        opening = _FENCE.match(lines[number])
        number += 1
        if not opening:
            continue
        start = number
        while lines[number].strip() != opening[2]:
            number += 1
        found.append(Block(opening[3], start + 1, textwrap.dedent("\n".join(lines[start:number]))))
        number += 1
    return found


def python_of(page: Path) -> list[Block]:
    """The Python of a page or a notebook, in order."""
    text = page.read_text(encoding="utf-8")
    if page.suffix != ".ipynb":
        return [block for block in blocks(text) if block.language == "python"]
    found, line = [], 1
    for cell in json.loads(text)["cells"]:
        if cell["cell_type"] == "code":
            code = "".join(cell["source"])
            found.append(Block("python", line, code))
            line += code.count("\n") + 2
    return found


def as_module(found: list[Block]) -> str:
    """The blocks as one file in which every line has the number that it has in the page."""
    lines: list[str] = []
    for block in found:
        lines += [""] * (block.line - 1 - len(lines))
        lines += block.code.splitlines()
    return "\n".join(lines) + "\n"


def commands(text: str) -> Iterator[tuple[int, list[str]]]:
    """Line and words of every command in the shell blocks of a page."""
    for block in blocks(text):
        if block.language not in ("bash", "sh"):
            continue
        code = block.code.replace("\\\n", "  ")
        for offset, line in enumerate(code.splitlines()):
            words: list[str] = []
            for word in [*shlex.split(line, comments=True), ";"]:
                if word not in _SEPARATORS:
                    words.append(word)
                    continue
                if words:
                    yield block.line + offset, words
                words = []
