"""Why a run has no verdict although everything was measured: its texts are garbage, or its drafter knows nothing of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def withheld(trust: Mapping[str, Any] | None) -> str:
    """The first reason in the `trust` of a run (`driftscope.audit.trusting`); empty where there is none."""
    for part in ("texts", "control"):
        held = (trust or {}).get(part)
        if isinstance(held, Mapping) and held.get("reason"):
            return str(held["reason"])
    return ""
