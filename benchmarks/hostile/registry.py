"""The makers of files that lie, by the reader that is given them."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hostile.stock import Stock

MARK = "code-ran"
"""What the code in a pickle makes."""
Random = random.Random
Maker = Callable[[Path, Random, Stock], Path]
"""Writes a case into an empty folder and returns what is to be opened."""
MAKERS: dict[str, list[tuple[str, Maker]]] = {}
"""Reader -> the makers of its cases, by name; those that are there several times are drawn as often."""


def maker(reader: str, weight: int = 1) -> Callable[[Maker], Maker]:
    """Register a maker; it is drawn as often as `weight` others."""

    def register(function: Maker) -> Maker:
        MAKERS.setdefault(reader, []).extend([(function.__name__.replace("_", " "), function)] * weight)
        return function

    return register


class Code:
    """Runs when it is unpickled."""

    def __init__(self, call: Callable[..., Any], *arguments: Any) -> None:
        self.made = call, arguments

    def __reduce__(self) -> Any:
        return self.made


def written(folder: Path, files: Mapping[str, bytes]) -> Path:
    """`folder`, made where it is missing, with these files in it."""
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder
