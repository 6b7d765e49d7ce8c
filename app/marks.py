"""Onsets to mark in charts, at the thresholds in force."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from driftscope.app.digest import Digest
from driftscope.app.figures import Onsets
from driftscope.app.library import Entry
from driftscope.app.loading import digest_of


def onsets_of(entries: Sequence[Entry]) -> Onsets:
    """Per run, as plain values."""
    return tuple(_of(digest_of(entry) or {}) for entry in entries)


def _of(found: Digest) -> tuple[tuple[str, Any, Any, Any], ...]:
    spread = found.get("onset_spread", {})
    starts = found.get("onset", {}).items()
    return tuple((key, start, *(spread.get(key, {}).get(end) for end in ("low", "high"))) for key, start in starts)
