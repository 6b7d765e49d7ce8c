"""Progress on stderr: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Protocol, Self, runtime_checkable

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

_LINE_SECONDS = 15.0


@runtime_checkable
class ProgressReport(Protocol):
    """What a long computation tells about itself."""

    def stage(self, name: str, total: int) -> None:
        """A new stage of `total` pieces; the one before is over."""

    def advance(self, n: int = 1, note: str = "") -> None:
        """`n` more pieces of the stage are done; `note` says which."""

    def message(self, text: str) -> None:
        """Something worth a line."""


class NullProgress:
    """Says nothing."""

    def stage(self, name: str, total: int) -> None:
        pass

    def advance(self, n: int = 1, note: str = "") -> None:
        pass

    def message(self, text: str) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


class LineProgress(NullProgress):
    """Plain lines for logs: one at the start and the end of a stage, and one every 15 seconds between."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._name = ""
        self._total = self._done = 0
        self._started = self._printed = 0.0

    def stage(self, name: str, total: int) -> None:
        self._name, self._total, self._done = name, total, 0
        self._started = self._printed = time.monotonic()
        self.message(f"{name}: 0/{total}")

    def advance(self, n: int = 1, note: str = "") -> None:
        self._done += n
        now = time.monotonic()
        if self._done >= self._total:
            self.message(f"{self._name}: {self._done}/{self._total} in {now - self._started:.0f} s")
        elif now - self._printed >= _LINE_SECONDS:
            self._printed = now
            self.message(f"{self._name}: {self._done}/{self._total}" + (f" ({note})" if note else ""))

    def message(self, text: str) -> None:
        self._console.print(Text(text), soft_wrap=True)


class RichProgress(NullProgress):
    """A bar per stage, with the time left. A context manager."""

    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=28),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.fields[note]}", style="dim", markup=False),
            console=console,
        )
        self._task: TaskID | None = None

    def stage(self, name: str, total: int) -> None:
        self._finish()
        self._task = self._progress.add_task(name, total=total, note="")

    def advance(self, n: int = 1, note: str = "") -> None:
        if self._task is not None:
            self._progress.update(self._task, advance=n, note=note)

    def message(self, text: str) -> None:
        self._progress.console.print(Text(text, style="dim"))

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._finish()
        self._progress.stop()

    def _finish(self) -> None:
        if self._task is not None:
            self._progress.update(self._task, note="")
            self._progress.stop_task(self._task)
            self._task = None


def stderr_progress() -> RichProgress | LineProgress:
    """Bars if stderr is a terminal, lines if not."""
    console = Console(file=sys.stderr, highlight=False)
    return RichProgress(console) if console.is_terminal and not console.is_dumb_terminal else LineProgress(console)
