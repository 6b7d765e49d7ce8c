"""A chat template of one's own, instead of the target's."""

from __future__ import annotations

from pathlib import Path

from driftscope.errors import PromptError


def read_template(file: Path) -> str:
    """A chat template from a Jinja file."""
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise PromptError(f"--chat-template {file} cannot be read: {reason}") from None
