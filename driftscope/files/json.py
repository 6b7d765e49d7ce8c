"""JSON from files that anyone may have written: regular files only, and no more memory than they are worth."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

from driftscope.errors import DriftscopeError

_SPARE = 64 * 2**20
# An empty list or object and the place that it takes in what holds it: what costs most per character.
_BYTES_A_PART = 72
_DEEPEST = 64


def check_regular(path: Path, error: type[DriftscopeError]) -> int:
    """The size of a file in bytes, links followed.

    Raises:
        error: a pipe, a device or a folder, which could be waited for or read forever.
        OSError: nothing there.
    """
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise error(f"{path}: not a regular file")
    return found.st_size


def json_object(path: Path, error: type[DriftscopeError], *, limit: int | None = None) -> dict[str, Any]:
    """A JSON object of at most `limit` bytes.

    Raises:
        error: too large, of so many parts that it would take far more memory than its size, not JSON, or no object.
        OSError: nothing there, or unreadable.
    """
    size = check_regular(path, error)
    if limit is not None and size > limit:
        raise error(f"{path}: {size:,} bytes of JSON, more than the {limit:,} allowed")
    try:
        text = path.read_text(encoding="utf-8")
        check_parts(str(path), text, error)
        value = json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise error(f"{path}: not valid JSON ({problem})") from problem
    if _depth(value) > _DEEPEST:
        raise error(f"{path}: JSON of more than {_DEEPEST} levels, which no program here writes; not read")
    if not isinstance(value, dict):
        raise error(f"{path}: expected a JSON object, found {type(value).__name__}")
    return value


def check_parts(where: str, text: str, error: type[DriftscopeError]) -> None:
    """Raises `error` for JSON of so many parts that it would take far more memory than its size."""
    parts = sum(text.count(mark) for mark in "[{,")
    if parts * _BYTES_A_PART > 2 * len(text) + _SPARE:
        raise error(
            f"{where}: {parts:,} parts in {len(text):,} characters of JSON, which no program here writes; not read"
        )


def _depth(value: Any) -> int:
    """Levels of containers, counted no further than one beyond the deepest that is allowed."""
    level, depth = [value], 0
    while depth <= _DEEPEST:
        level = [part for part in level if isinstance(part, dict | list) and part]
        if not level:
            break
        depth += 1
        level = [child for part in level for child in (part.values() if isinstance(part, dict) else part)]
    return depth
