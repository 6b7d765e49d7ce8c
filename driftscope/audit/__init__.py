"""The audit: is this the model that was trained? Every switch of a drafter against its alternatives, on one capture."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from driftscope.audit.report import Audit
    from driftscope.audit.run import audit, audit_captures
    from driftscope.audit.short import short_audit, short_boundaries

__all__ = ["Audit", "audit", "audit_captures", "short_audit", "short_boundaries"]

# Loaded on first use: the codes of the audit can be read without torch.
_LAZY = {
    "Audit": "driftscope.audit.report",
    "audit": "driftscope.audit.run",
    "audit_captures": "driftscope.audit.run",
    "short_audit": "driftscope.audit.short",
    "short_boundaries": "driftscope.audit.short",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
