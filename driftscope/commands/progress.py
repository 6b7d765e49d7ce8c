"""What a command that takes long has around it."""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any


@contextlib.contextmanager
def working(debug: bool) -> Iterator[Any]:
    """Progress on stderr, where libraries print too: stdout is for the result. Python warnings are lines of it."""
    # Not needed for --help.
    from driftscope.progress import stderr_progress

    with contextlib.redirect_stdout(sys.stderr), stderr_progress() as progress:
        # The first import of torch takes seconds.
        progress.message("starting")
        with told_in_a_line(progress.message, debug):
            yield progress


@contextlib.contextmanager
def told_in_a_line(tell: Callable[[str], None], debug: bool) -> Iterator[None]:
    """Python warnings as lines of progress; those for developers only with --debug."""

    def show(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        if debug or not issubclass(category, DeprecationWarning | FutureWarning | PendingDeprecationWarning):
            tell(f"warning: {' '.join(str(message).split())}")

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield
