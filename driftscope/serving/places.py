"""Where the pair of a run is taken from. Without torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Places:
    """Where the pair is, if it is not where the run says, and where it runs."""

    checkpoint: str | Path | None = None
    target: str | Path | None = None
    device: str = "auto"
    dtype: str | None = None
    """None is that of the run."""
    trust_remote_code: bool = False
    cache_dir: str | Path | None = None
