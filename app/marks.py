"""Onsets to mark in charts, at the thresholds in force."""

from __future__ import annotations

from collections.abc import Sequence

from driftscope.app.figures import Onsets
from driftscope.app.library import Entry
from driftscope.app.loading import digest_of


def onsets_of(entries: Sequence[Entry]) -> Onsets:
    """Per run, as plain values."""
    return tuple(tuple((digest_of(entry) or {}).get("onset", {}).items()) for entry in entries)
