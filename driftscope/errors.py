"""The errors that reach a user as one line and exit code 2."""

_LONGEST = 1000


class DriftscopeError(Exception):
    """Something the user can act on: the message says what happened, seen against expected, and what fixes it.

    Names and values in it may come from a file: what does not print is escaped, and what goes on and on is cut.
    """

    def __init__(self, message: object = "") -> None:
        text = str(message)
        if not text.isprintable():
            # Lines become one; the rest, such as a terminal's control codes, is shown as what it is.
            text = " ".join(text.split())
            text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
        super().__init__(text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}...")


class CheckpointError(DriftscopeError):
    """A drafter checkpoint that cannot be read or does not fit together."""


class TargetError(DriftscopeError):
    """A target that cannot be loaded or does not fit the drafter."""


class PromptError(DriftscopeError):
    """A prompt file without a usable prompt."""


class RunError(DriftscopeError):
    """A run folder that cannot be written, resumed or opened."""
