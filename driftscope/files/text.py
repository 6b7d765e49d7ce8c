"""Text that anyone may have written: regular files or standard input, of a size that fits into memory."""

from __future__ import annotations

import sys
from pathlib import Path

from driftscope.errors import DriftscopeError
from driftscope.files.json import check_regular

LARGEST = 256 * 2**20
STDIN = Path("-")


def text_of(path: Path, error: type[DriftscopeError], *, limit: int = LARGEST) -> str:
    """The text of a file, of standard input for `-`; bytes that are no UTF-8 are replaced, as logs hold some.

    Raises:
        error: nothing there, no regular file, unreadable, or more than `limit` bytes.
    """
    try:
        if path == STDIN:
            data = sys.stdin.buffer.read(limit + 1)
        else:
            check_regular(path, error)
            with path.open("rb") as stream:
                data = stream.read(limit + 1)
    except OSError as problem:
        raise error(f"{path}: cannot be read ({problem.strerror or problem})") from problem
    if len(data) > limit:
        raise error(f"{path}: more than the {limit:,} bytes allowed; give the lines in question alone")
    return data.decode("utf-8", "replace")
