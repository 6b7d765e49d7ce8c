"""The errors that reach a user as one line and exit code 2."""


class DriftscopeError(Exception):
    """Something the user can act on: the message says what happened, seen against expected, and what fixes it."""


class CheckpointError(DriftscopeError):
    """A drafter checkpoint that cannot be read or does not fit together."""


class TargetError(DriftscopeError):
    """A target that cannot be loaded or does not fit the drafter."""


class PromptError(DriftscopeError):
    """A prompt file without a usable prompt."""


class RunError(DriftscopeError):
    """A run folder that cannot be written, resumed or opened."""
