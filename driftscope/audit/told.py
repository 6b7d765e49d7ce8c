"""A short audit that a run holds, in words: what to warn of, or a line on why there is nothing to warn of. Without torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_MORE = "`driftscope audit` tries every switch"


def audit_warnings(audit: Mapping[str, Any] | None) -> tuple[str, ...]:
    """One line for what seems to be run otherwise than it was trained."""
    return tuple(audit.get("warnings", ())) if audit else ()


def audit_note(audit: Mapping[str, Any] | None) -> str:
    """One line where there is no warning; empty where no audit was asked for."""
    if not audit or audit_warnings(audit):
        return ""
    if not audit["decided"]:
        return f"short audit: cannot tell, {audit.get('reason', 'and the run does not say why')}"
    tried = sum(row["status"] != "ruled out" for row in audit.get("hypotheses", ()))
    prompts = audit.get("prompts", 0)
    return f"short audit: none of {tried} other settings fits better, as far as {prompts} prompts tell; {_MORE}"
